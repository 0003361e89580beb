package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"aep-wrap/collector"
	"aep-wrap/execution"
)

func newTokenCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Show or renew your token, or make others that allow less",
		Long: `The per-user collector asks whoever comes over TCP for a token. It is made once
and kept in ~/.aep/token, readable by you alone. It allows everything.

Tokens that allow less stand in a file, which --tokens of aep-wrap collect and of
aep-wrap runtime names: a line has a token, a space, and what it allows with
commas between. # begins a comment.

  emit watch control          roles at a collector
  agent.read agent.write run.read run.create run.cancel stream.subscribe
  subject.read subject.erase subject.export memory.read memory.write tool.invoke
                              scopes at a runtime
  *                           all of them`,
		Args: cobra.NoArgs,
	}
	var asURL bool
	show := &cobra.Command{
		Use:   "show",
		Short: "Print the token",
		Example: `  aep-wrap token show
  aep-wrap token show --url    the address of the page, with the token in it`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			token, err := a.collectorToken()
			if err != nil {
				return err
			}
			if asURL && a.cfg.Listen == off && a.cfg.Collector == "" {
				return usageError("--listen is off: there is no collector to open")
			}
			if asURL {
				// In the fragment, which browsers send to nobody.
				token = a.watchURL() + "/#token=" + token
			}
			_, err = fmt.Fprintln(a.Stdout, token)
			return err
		},
	}
	show.Flags().BoolVar(&asURL, "url", false, "print the page's address with the token in its fragment")
	rotate := &cobra.Command{
		Use:   "rotate",
		Short: "Make a new token; the old one is refused within seconds",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := privateDir(a.paths.aep); err != nil {
				return err
			}
			if _, err := writeToken(a.paths.token(), true); err != nil {
				return err
			}
			if !a.cfg.Quiet {
				fmt.Fprintln(a.Stderr, "aep-wrap: the token is renewed; a running collector asks for it within seconds")
			}
			return nil
		},
	}
	var file string
	add := &cobra.Command{
		Use:   "new ALLOWS",
		Short: "Make a token for a file of tokens",
		Example: `  aep-wrap token new watch --file tokens
  aep-wrap token new agent.read,agent.write,run.read,run.create,stream.subscribe --file tokens`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError("token new: want what it allows, such as watch or run.read,stream.subscribe; see %s --help", cmd.Parent().CommandPath())
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			before := typed[:strings.LastIndex(typed, ",")+1]
			var words []string
			for _, allows := range append([]string{"emit", "watch", "control"}, scopeNames()...) {
				words = append(words, before+allows)
			}
			return begins(words, typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		},
		RunE: func(_ *cobra.Command, args []string) error {
			token := randomToken()
			line := token + " " + args[0] + "\n"
			if _, err := collector.ParseTokens([]byte(line), scopeNames()...); err != nil {
				return usageError("token new: %s", strings.TrimPrefix(err.Error(), "line 1: "))
			}
			if file == "" {
				_, err := io.WriteString(a.Stdout, line)
				return err
			}
			f, err := os.OpenFile(a.paths.expand(file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			_, err = f.WriteString(line)
			if err = errors.Join(err, f.Close()); err == nil {
				_, err = fmt.Fprintln(a.Stdout, token)
			}
			return err
		},
	}
	add.Flags().StringVar(&file, "file", "", "add it to this `FILE`, and print the token alone")
	cmd.AddCommand(show, rotate, add)
	return cmd
}

// scopeNames are the scopes of the runtime, as a file of tokens has them.
func scopeNames() (names []string) {
	for _, s := range execution.Scopes {
		names = append(names, string(s))
	}
	return names
}

// readTokens reads a file of tokens, for whichever server asks.
func (a *app) readTokens(file string) ([]collector.Token, error) {
	path := a.paths.expand(file)
	text, err := readPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("--tokens: %w", err)
	}
	tokens, err := collector.ParseTokens(text, scopeNames()...)
	if err == nil && len(tokens) == 0 {
		err = errors.New("it holds no token")
	}
	if err != nil {
		return nil, fmt.Errorf("--tokens: %s: %w", path, err)
	}
	return tokens, nil
}

// collectorToken is the token of the per-user collector: the configured one,
// else the one in ~/.aep/token, which is made when it is not there.
func (a *app) collectorToken() (string, error) {
	if a.cfg.Token != "" {
		return a.cfg.Token, nil
	}
	token, err := readToken(a.paths.token())
	if errors.Is(err, fs.ErrNotExist) {
		if err := privateDir(a.paths.aep); err != nil {
			return "", err
		}
		return writeToken(a.paths.token(), false)
	}
	return token, err
}

// linkKey signs the tokens of devices that aep-wrap link lets in. It is made of
// a secret of the collector's and of the token: with a new token, devices are
// refused too. Where no token is asked for there are no devices.
func (a *app) linkKey(tokens []collector.Token) ([]byte, error) {
	if len(tokens) == 0 {
		return nil, nil
	}
	path := filepath.Join(a.paths.aep, "link-key")
	secret, err := readToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		secret, err = writeToken(path, false)
	}
	if err != nil {
		return nil, fmt.Errorf("the key of links: %w", err)
	}
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(tokens[0].Value))
	return h.Sum(nil), nil
}

func readToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token, err := parseToken(strings.TrimSpace(string(b)))
	if err != nil {
		return "", fmt.Errorf("%s: %w; aep-wrap token rotate makes a new one", path, err)
	}
	if fi, err := os.Stat(path); err == nil && fi.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(path, 0o600); err != nil {
			return "", fmt.Errorf("%s can be read by others, and that cannot be changed: %w", path, reason(err))
		}
	}
	return token, nil
}

func randomToken() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// writeToken makes a token. Without replace, one that somebody made at the
// same time stands: all get the same.
func writeToken(path string, replace bool) (string, error) {
	token := randomToken()
	tmp, err := os.CreateTemp(filepath.Dir(path), ".token-*") // 0600
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(token + "\n")
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", err
	}
	if replace {
		return token, os.Rename(tmp.Name(), path)
	}
	if err := os.Link(tmp.Name(), path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return readToken(path)
		}
		return token, os.Rename(tmp.Name(), path) // no hard links there
	}
	return token, nil
}
