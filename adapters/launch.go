package adapters

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// CommandLine is how a runtime is started, as far as it tells a session of this
// terminal from everything else.
type CommandLine struct {
	Commands []string // its own names
	Packages []string // what npx and the like run, and node by their folder
	Grammar
	Idle []string // subcommands that start no session of this terminal
	Asks []string // flags that print something and end
}

// Detect finds the runtime in a command line.
func (c CommandLine) Detect(l Launch) bool { return c.index(l.Args) >= 0 }

func (c CommandLine) index(args []string) int { return CommandIndex(args, c.Commands, c.Packages) }

// Begin reads a launch: its wiring before anything is changed, the words that
// follow the command, and their place. It is no session where the wiring stays
// as it is.
func (c CommandLine) Begin(l Launch) (w Wiring, words Line, at int, session bool) {
	w.Args = slices.Clone(l.Args)
	if at = c.index(l.Args) + 1; at == 0 {
		return w, words, at, false
	}
	words = c.Read(l.Args[at:])
	w.Passthrough = words.Has(c.Asks...) || slices.Contains(c.Idle, words.Word())
	return w, words, at, !w.Passthrough
}

// CommandIndex finds the word of a command line that starts a runtime: the
// command itself, whatever its folder; what npx, bunx, pnpm dlx or the like
// run, by the name of the package; or the script that node or bun run, by its
// path within that package. It is -1 where the line starts something else.
func CommandIndex(args []string, commands, packages []string) int {
	if len(args) == 0 {
		return -1
	}
	is := func(word string) bool { return slices.Contains(commands, base(word)) }
	if is(args[0]) {
		return 0
	}
	rest, ok := 1, true
	switch base(args[0]) {
	case "npx", "bunx", "pnpx":
	case "pnpm", "yarn":
		rest, ok = 2, len(args) > 2 && args[1] == "dlx"
	case "npm":
		rest, ok = 2, len(args) > 2 && (args[1] == "exec" || args[1] == "x")
	case "bun":
		if len(args) > 2 && args[1] == "x" {
			rest = 2
			break
		}
		return script(args, packages)
	case "node", "deno":
		return script(args, packages)
	default:
		return -1
	}
	if !ok {
		return -1
	}
	named := false // -p PACKAGE said what to install; the command's own name follows
	for i := rest; i < len(args); i++ {
		w := args[i]
		switch {
		case w == "--":
		case w == "-p" || w == "--package":
			if i++; i < len(args) && isPackage(args[i], packages) {
				named = true
			}
		case strings.HasPrefix(w, "--package="):
			named = named || isPackage(w[len("--package="):], packages)
		case strings.HasPrefix(w, "-"):
		case isPackage(w, packages), named && is(w):
			return i
		default:
			return -1
		}
	}
	return -1
}

// isPackage compares a package's name, whatever version or tag it carries.
func isPackage(word string, packages []string) bool {
	if i := strings.LastIndexByte(word, '@'); i > 0 {
		word = word[:i]
	}
	return slices.Contains(packages, word)
}

// script finds the script that an interpreter runs.
func script(args, packages []string) int {
	for i := 1; i < len(args); i++ {
		switch w := args[i]; {
		case w == "run" && i == 1:
		case w == "-r" || w == "--require" || w == "--import" || w == "--loader" || w == "-C" || w == "--conditions":
			i++
		case strings.HasPrefix(w, "-"):
		default:
			for _, p := range packages {
				if strings.Contains(strings.ReplaceAll(w, `\`, "/"), "/"+p+"/") {
					return i
				}
			}
			return -1
		}
	}
	return -1
}

func base(word string) string {
	b := path.Base(strings.ReplaceAll(word, `\`, "/"))
	for _, ext := range []string{".exe", ".cmd", ".js", ".cjs", ".mjs"} {
		b = strings.TrimSuffix(b, ext)
	}
	return b
}

// Gated says whether one of the patterns means a tool: its name, upper and
// lower case alike, with * for any characters.
func Gated(patterns []string, tool string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		parts := strings.Split(p, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		re, err := regexp.Compile("(?is)^" + strings.Join(parts, ".*") + "$")
		return err == nil && re.MatchString(tool)
	})
}

// Outlast is how long a runtime must let a hook take that is held for d: a
// little longer than we hold it, so that it is we who give up; least where it
// is not held.
func Outlast(d, least time.Duration) time.Duration {
	if d <= 0 {
		return least
	}
	return max(least, d+30*time.Second)
}

// Getenv gives a variable of a launch's environment: the last one counts.
func (l Launch) Getenv(name string) (string, bool) {
	for i := len(l.Env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(l.Env[i], name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// Proxied says whether a runtime that takes the proxy variables at their word
// would ask a proxy for an address on loopback: NO_PROXY excepts nothing by
// itself.
func (l Launch) Proxied(url string) bool {
	first := func(names ...string) string {
		for _, n := range names {
			if v, _ := l.Getenv(n); v != "" {
				return v
			}
		}
		return ""
	}
	if first("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY") == "" {
		return false
	}
	_, rest, _ := strings.Cut(url, "://")
	host, _, _ := strings.Cut(rest, "/")
	bare, _, _ := strings.Cut(host, ":")
	for _, x := range strings.FieldsFunc(first("no_proxy", "NO_PROXY"), func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
		if x == "*" || x == host || x == bare {
			return false
		}
	}
	return true
}
