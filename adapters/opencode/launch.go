package opencode

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"aep-wrap/adapters"
)

func (v Variant) detect(l adapters.Launch) bool { return v.index(l.Args) >= 0 }

func (v Variant) index(args []string) int {
	return adapters.CommandIndex(args, []string{v.Command}, v.Packages)
}

// grammar is the syntax of its flags.
var grammar = adapters.Grammar{
	Valued: []string{
		"--log-level", "--port", "--hostname", "--mdns-domain", "--cors", "-m", "--model", "-s", "--session", "--prompt", "--agent",
		"--replay-limit", "--command", "--format", "-f", "--file", "--title", "--attach", "-p", "--password", "-u", "--username", "--dir",
		"--variant",
	},
}

// subcommands start no session that we could follow.
var subcommands = []string{
	"completion", "acp", "mcp", "debug", "providers", "auth", "agent", "upgrade", "uninstall", "models", "stats", "export", "import",
	"github", "pr", "session", "plugin", "plug", "db",
}

// asksOnly are flags that print something and end.
var asksOnly = []string{"-h", "--help", "-v", "--version"}

// wiring is a wiring in the making.
type wiring struct {
	v     Variant
	l     adapters.Launch
	e     adapters.Endpoint
	at    int // of the command's own word
	words adapters.Line
	dir   string // that we name, where the user names none
	out   adapters.Wiring
}

// wire has the command open its server to us, on a port of loopback and under a
// password of this launch's; a command without a server gets one of ours to
// join. Nothing is written.
func (v Variant) wire(l adapters.Launch, e adapters.Endpoint) (adapters.Wiring, error) {
	w := &wiring{v: v, l: l, e: e, at: v.index(l.Args), out: adapters.Wiring{Args: slices.Clone(l.Args)}}
	if w.at < 0 {
		return w.out, nil
	}
	g := grammar
	g.Valued = slices.Concat(g.Valued, v.Valued)
	w.words = g.Read(l.Args[w.at+1:])
	word := w.words.Word()
	if w.words.Has(asksOnly...) || slices.Contains(subcommands, word) || slices.Contains(v.Words, word) {
		w.out.Passthrough = true
		return w.out, nil
	}
	switch {
	case word == "attach" && len(w.words.Words) > 1:
		w.join(w.words.Words[1])
	case word == "run" && w.words.Has("--attach"):
		w.join(w.words.Value("--attach"))
	case word == "run" && l.Attach == own:
		w.beside()
	case word == "run" && l.Attach != "":
		w.attach(l.Attach)
		w.join(l.Attach)
	case l.Attach == own:
		w.note("--attach new is for " + v.Command + " run alone: there is a server inside")
		w.inside()
	case l.Attach != "" && word == "":
		w.insert(w.at+1, "attach", l.Attach)
		w.join(l.Attach)
	case l.Attach != "":
		w.note("--attach is for " + v.Command + " alone, and " + v.Command + " run")
		w.inside()
	case word == "run":
		// It opens no port, and one that joins a server often loses the last of
		// what it prints: what it prints counts for more.
		if l.TTY {
			w.note(v.Command + " run has no server to be followed by: nothing but its start and end is seen (--attach new gives it one; it may then not print its last text)")
		}
	default:
		w.inside()
	}
	return w.out, nil
}

// own is the Launch.Attach that asks for a server of ours.
const own = adapters.AttachNew

func (w *wiring) note(s string) { w.out.Notes = append(w.out.Notes, w.v.Name+": "+s) }

func (w *wiring) insert(at int, words ...string) {
	w.out.Args = slices.Insert(w.out.Args, at, words...)
}

// after puts words behind a subcommand.
func (w *wiring) after(sub string, words ...string) {
	i := slices.Index(w.out.Args[w.at+1:], sub)
	w.insert(w.at+1+i+1, words...)
}

func (w *wiring) env(name string) string {
	s, _ := w.l.Getenv(w.v.Env + name)
	return s
}

func (w *wiring) set(name, value string) {
	if w.out.SetEnv == nil {
		w.out.SetEnv = map[string]string{}
	}
	w.out.SetEnv[w.v.Env+name] = value
}

// credentials are what the server asks for: the user's, or ours where the port
// is ours, too.
func (w *wiring) credentials(ours bool) (user, password string) {
	user = w.env("SERVER_USERNAME")
	if user == "" {
		user = w.v.Command
	}
	if password = w.env("SERVER_PASSWORD"); password == "" && ours {
		password = w.e.Secret
		w.set("SERVER_PASSWORD", password)
	}
	return user, password
}

// inside is a command with a server inside. A port that the user gave is the
// user's to reach, so it gets no password of ours.
func (w *wiring) inside() {
	port, ours := w.words.Value("--port"), false
	host := w.words.Value("--hostname")
	open := slices.Contains([]string{"serve", "web"}, w.words.Word()) // for others to reach
	if open {
		h, p := w.address()
		if host == "" {
			host = h
		}
		if port == "" {
			port = p
		}
	}
	if n, err := strconv.Atoi(port); err != nil || n == 0 {
		if w.e.Port == 0 {
			w.note("there is no free port for its server: nothing is seen")
			return
		}
		port, ours = strconv.Itoa(w.e.Port), !open
		if open {
			w.after(w.words.Word(), "--port", port)
		} else {
			w.insert(w.at+1, "--port", port)
		}
	}
	switch {
	case slices.Contains([]string{"", "0.0.0.0", "::", "localhost"}, host):
		host = "127.0.0.1"
	case strings.Contains(host, ":"):
		host = "[" + host + "]"
	}
	w.out.Server = &adapters.Served{URL: "http://" + host + ":" + port}
	w.out.Server.User, w.out.Server.Password = w.credentials(ours)
}

// beside is "run", whose server cannot be reached: it joins one of ours. It
// answers every question at once, with a refusal.
func (w *wiring) beside() {
	if w.e.Port == 0 {
		w.note("there is no free port for a server: nothing is seen")
		return
	}
	port := strconv.Itoa(w.e.Port)
	url := "http://127.0.0.1:" + port
	start := append(slices.Clone(w.l.Args[:w.at+1]), "serve", "--port", port, "--hostname", "127.0.0.1")
	if w.words.Has("--pure") {
		start = append(start, "--pure")
	}
	w.attach(url)
	w.out.Server = &adapters.Served{URL: url, Start: start, Query: w.query(), Settled: true}
	w.out.Server.User, w.out.Server.Password = w.credentials(true)
}

// join is a command that joins a server that runs already.
func (w *wiring) join(url string) {
	if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		w.note("the server's address is not an http URL: nothing is seen")
		return
	}
	s := &adapters.Served{URL: strings.TrimSuffix(url, "/"), Query: w.query(), Foreign: true, Settled: w.words.Word() == "run"}
	s.User, s.Password = w.credentials(false)
	if u := w.words.Value("-u", "--username"); u != "" {
		s.User = u
	}
	if p := w.words.Value("-p", "--password"); p != "" {
		s.Password = p
	}
	w.out.Server = s
}

// attach has "run" join a server, in the folder that it would work in by
// itself.
func (w *wiring) attach(url string) {
	words := []string{"--attach", url}
	if !w.words.Has("--dir") && w.l.Dir != "" {
		w.dir = w.l.Dir
		words = append(words, "--dir", w.dir)
	}
	w.after("run", words...)
}

// query names the folder whose sessions are followed, where it is not the one
// that the server was started in.
func (w *wiring) query() string {
	dir := w.words.Value("--dir")
	if w.dir != "" {
		dir = w.dir
	}
	if dir != "" && !path.IsAbs(dir) {
		dir = path.Join(w.l.Dir, dir)
	}
	if dir == "" {
		return ""
	}
	return "directory=" + escape(dir)
}

// escape writes a path as a query's value.
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if letter || strings.IndexByte("/-_.~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteString("%" + strings.ToUpper(string("0123456789abcdef"[c>>4])+string("0123456789abcdef"[c&15])))
	}
	return b.String()
}
