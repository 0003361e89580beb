package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"rsc.io/qr"
)

func newLinkCmd(a *app) *cobra.Command {
	var o linkOptions
	cmd := &cobra.Command{
		Use:   "link",
		Short: "Open the page on a phone, by a link and a QR code that work once",
		Long: `Prints a link to the collector's page, and in a terminal a QR code of it. It lets
one device in, once, within five minutes: the code in it is exchanged for a token
of the device's own, which watches and commands for a day, or as --for and --roles
say. The code stands in the fragment, which browsers send to nobody. aep-wrap
token rotate ends the tokens of all devices.

The page has to be reachable from the device. Where it is not, link says what is
missing, and its link opens the page on this machine:

  a certificate   aep-wrap collect --listen 0.0.0.0:8787 --tls-cert C --tls-key K
  a tunnel, or a  aep-wrap collect --host NAME, and behind it what makes
  VPN's proxy     https://NAME of 127.0.0.1:8787; then
                  aep-wrap link --page-url https://NAME`,
		Example: `  aep-wrap link
  aep-wrap link --page-url https://agents.example --for 8h
  aep-wrap link --roles watch     a device that watches, and commands nothing`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.drawn = cmd.Flags().Changed("qr")
			return a.link(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.roles, "roles", "watch,control", "what the device may do, as `ROLES`: watch, or watch,control")
	cmd.Flags().DurationVar(&o.life, "for", 24*time.Hour, "how long it may")
	cmd.Flags().BoolVar(&o.qr, "qr", false, "draw the QR code; without it, in a terminal")
	_ = cmd.RegisterFlagCompletionFunc("roles", cobra.FixedCompletions([]string{"watch", "watch,control"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

type linkOptions struct {
	roles     string
	life      time.Duration
	qr, drawn bool
}

// linkRecord is a link as --json tells it.
type linkRecord struct {
	URL     string   `json:"url"`
	Roles   string   `json:"roles"`
	Until   string   `json:"use_until"` // the link
	Seconds int      `json:"seconds"`   // the device's token
	Missing []string `json:"missing"`   // until a device reaches it
}

func (a *app) link(ctx context.Context, o linkOptions) error {
	if o.life < time.Second || o.life > 31*24*time.Hour {
		return usageError("--for %v: want a time from 1s to 744h", o.life)
	}
	if a.cfg.Listen == off && a.cfg.Collector == "" {
		return usageError("--listen is off: there is no page to open; name a collector with --collector")
	}
	code, err := a.makeCode(ctx, o)
	if err != nil {
		return err
	}
	base, missing := a.pageAddress(ctx)
	r := linkRecord{URL: base + "/#" + url.Values{"code": {code.Code}}.Encode(), Roles: code.Roles, Until: code.ExpiresAt, Seconds: int(o.life.Seconds()), Missing: missing}
	if a.cfg.JSON {
		if r.Missing == nil {
			r.Missing = []string{}
		}
		return a.encoder().Encode(r)
	}
	if o.qr || !o.drawn && isTerminal(a.Stdout) && len(missing) == 0 {
		if err := a.drawQR(r.URL); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(a.Stdout, r.URL); err != nil {
		return err
	}
	if a.cfg.Quiet {
		return nil
	}
	may := "watch and command"
	if code.Roles == "watch" {
		may = "watch"
	}
	fmt.Fprintf(a.Stderr, "aep-wrap: opens the page once, within five minutes; the device may then %s for %s\n", may, lifetime(o.life))
	for _, m := range missing {
		fmt.Fprintln(a.Stderr, "aep-wrap: "+m)
	}
	return nil
}

// lifetime writes how long a device may.
func lifetime(d time.Duration) string {
	switch {
	case d%(24*time.Hour) == 0:
		return count(int(d/(24*time.Hour)), "day")
	case d%time.Hour == 0:
		return count(int(d/time.Hour), "hour")
	}
	return d.String()
}

type linkCode struct {
	Code      string
	Roles     string
	ExpiresAt string `json:"expires_at"`
}

// makeCode asks the collector for a code. The per-user one is started when it
// does not run.
func (a *app) makeCode(ctx context.Context, o linkOptions) (linkCode, error) {
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	cfg, err := a.follow()
	if err != nil {
		return linkCode{}, err
	}
	body, err := json.Marshal(map[string]any{"roles": o.roles, "seconds": o.life.Seconds()})
	if err != nil {
		return linkCode{}, err
	}
	status, raw, err := postJSON(ctx, cfg.HTTP, cfg.Base+"/link", cfg.Token, "", body)
	if err != nil {
		return linkCode{}, a.explain(err)
	}
	var code linkCode
	var p struct{ Error, Detail string }
	_ = json.Unmarshal(raw, &p)
	switch {
	case status == http.StatusOK && json.Unmarshal(raw, &code) == nil && code.Code != "":
		return code, nil
	case status == http.StatusBadRequest:
		return code, usageError("link: %s", visible(p.Detail))
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		return code, errors.New("this collector makes no links: it asks for no token, or is an older one")
	}
	return code, a.explain(fmt.Errorf("it answers %d: %s", status, cmp.Or(p.Detail, p.Error)))
}

func postJSON(ctx context.Context, c *http.Client, to, token, origin string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	resp, err := c.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return 0, nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, raw, err
}

// pageAddress is where a device opens the page, and what is missing until it
// can.
func (a *app) pageAddress(ctx context.Context) (base string, missing []string) {
	info, _ := a.runningCollector()
	base = a.watchURL()
	switch {
	case a.cfg.PageURL != "":
		base = a.cfg.PageURL
	case a.cfg.Collector != "":
		if u, err := url.Parse(base); err == nil && loopback(net.JoinHostPort(u.Hostname(), "0")) {
			return base, []string{"only this machine reaches " + base + ": say how others do with --page-url"}
		}
	default:
		host, port, err := net.SplitHostPort(info.Address)
		if err != nil {
			return base, nil
		}
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			host = reachableHost(info)
			base = strings.TrimSuffix(info.origin(), info.Address) + net.JoinHostPort(host, port)
		}
		if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
			return base, notReachable(base, info)
		}
	}
	return base, probe(ctx, base)
}

// reachableHost is how others may call a collector that listens everywhere: by
// a name that it was given, else by an address of this machine's network.
func reachableHost(info collectorInfo) string {
	if len(info.Hosts) > 0 {
		return info.Hosts[0]
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	return pickAddress(addrs)
}

// pickAddress prefers what a phone in the same house has too.
func pickAddress(addrs []net.Addr) string {
	best, rank := "127.0.0.1", 0
	for _, addr := range addrs {
		p, err := netip.ParsePrefix(addr.String())
		if err != nil {
			continue
		}
		ip := p.Addr().Unmap()
		n := 0
		switch {
		case ip.IsLoopback(), ip.IsLinkLocalUnicast(), !ip.IsGlobalUnicast():
		case ip.Is4() && ip.IsPrivate():
			n = 4
		case ip.Is4():
			n = 3
		case ip.IsPrivate():
			n = 1
		default:
			n = 2
		}
		if n > rank {
			best, rank = ip.String(), n
		}
	}
	return best
}

// notReachable says how a page of this machine's alone becomes one of others.
func notReachable(base string, info collectorInfo) []string {
	_, port, _ := net.SplitHostPort(info.Address)
	return []string{
		"only this machine reaches " + base + ": the link opens the page in a browser here. For a phone there is missing one of:",
		"  a certificate: aep-wrap collect --listen 0.0.0.0:" + port + " --tls-cert CERT --tls-key KEY, and aep-wrap link again",
		"  a tunnel, or a VPN's proxy, that makes https://NAME of " + info.Address + ": aep-wrap collect --host NAME behind it, and aep-wrap link --page-url https://NAME",
	}
}

// probe asks the page's address, as a device would, whether a collector that
// makes links is there, and says what is in the way. It speaks from here: what
// keeps a device alone from it, it cannot know.
func probe(ctx context.Context, base string) []string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 4 * time.Second},
	}
	defer client.CloseIdleConnections()
	u, err := url.Parse(base)
	if err != nil {
		return nil
	}
	status, raw, err := postJSON(ctx, client, base+"/link/exchange", "", base, []byte(`{"code":"is-it-you"}`))
	var p struct{ Error string }
	_ = json.Unmarshal(raw, &p)
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &cert):
		return []string{fmt.Sprintf("the certificate of %s is not one that this machine trusts (%s): the device will not either, unless it was told to", base, visible(cert.Err.Error()))}
	case err != nil:
		return []string{fmt.Sprintf("nothing answers at %s from here (%s): is the tunnel or the VPN up?", base, visible(err.Error()))}
	case status == http.StatusGone && p.Error == "link-used":
		return nil
	case p.Error == "forbidden-host":
		return []string{fmt.Sprintf("the collector does not know that it is called %s: start it with aep-wrap collect --host %s", u.Hostname(), u.Hostname())}
	case p.Error == "forbidden-origin":
		return []string{fmt.Sprintf("what is in front of the collector changes its name: start it with aep-wrap collect --origin %s", base)}
	}
	return []string{fmt.Sprintf("what answers at %s (%d) is not this collector's page", base, status)}
}

// drawQR draws a QR code, two rows of it in a line, black on white whatever the
// terminal's colours are.
func (a *app) drawQR(text string) error {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return fmt.Errorf("the QR code: %w", err)
	}
	begin, end := "\x1b[38;5;16;48;5;231m", "\x1b[0m"
	dark := code.Black
	if !isTerminal(a.Stdout) || a.Getenv("TERM") == "dumb" {
		// Without colours the signs that are there are the light ones, as most
		// terminals are dark.
		begin, end = "", ""
		dark = func(x, y int) bool { return !code.Black(x, y) }
	}
	var b strings.Builder
	const quiet = 2 // readers want some; four is the standard's, half of it does
	for y := -quiet; y < code.Size+quiet; y += 2 {
		b.WriteString(begin)
		for x := -quiet; x < code.Size+quiet; x++ {
			b.WriteRune(halves[bit(dark(x, y))+2*bit(dark(x, y+1))])
		}
		b.WriteString(end + "\n")
	}
	_, err = io.WriteString(a.Stdout, b.String())
	return err
}

// halves are a cell's signs: nothing, its upper half, its lower, both.
var halves = []rune(" ▀▄█")

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
