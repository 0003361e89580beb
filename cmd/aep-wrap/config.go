package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/spf13/pflag"

	"aep-wrap/agent/follow"
	"aep-wrap/collector"
	"aep-wrap/control"
	"aep-wrap/event"
)

// config is the configuration as it holds after flags, environment, file and
// defaults were joined. Each field belongs to one row of settings.
type config struct {
	Collector  string // origin of the collector to send to; "" is the per-user one
	Token      string
	TokenFile  string
	TLS        tlsFiles
	PlainHTTP  bool // the token may go to another host without TLS
	Capture    event.Level
	CaptureFor map[string]event.Level // by category
	SecretEnv  []string
	NoPII      bool
	LogDir     string
	Listen     string // host:port of the per-user collector, or off
	Adapter    string
	Attach     string // URL of a server that the agent joins
	Dual       bool
	Agent      string
	Notify     string      // where people are called, by the per-user collector
	NotifyAt   event.Level // how much they are told
	PageURL    string      // where others reach the page
	JSON       bool
	Quiet      bool

	// The road back.
	Hold        time.Duration // negative is the adapter's own window
	Gate        []string      // tools, patterns with *
	GateRule    string        // a file of agent.Terms
	Allow, Deny []string      // verbs
	AnswerAfter time.Duration
	Senders     []string

	// What serve serves.
	Watch           []string
	Hooks           []string
	Archive         string
	From            string
	HookListen      string // on loopback, or ""
	HookSocket      string
	HookSocketGroup string
	HookSecretFile  string
	HealthListen    string // or off
	Drain           time.Duration
	Keep            keeping        // of session logs
	Runtime         runtimeOptions // its listen is "" where there is none
}

// off is the Listen that starts and joins no collector.
const off = "off"

// setting is one row of the configuration: a flag, an environment variable
// and a key of the file under one name, with one meaning. The flags, the
// reader of the environment, the reader of the file and the documentation are
// all made from this table.
type setting struct {
	name  string // the flag without dashes, and the key in the file
	arg   string // what its value is called in help; "" for a switch
	usage string
	def   string
	list  bool // may be given several times
	apply func(c *config, v string) error

	serve    bool   // it is a flag of serve alone; in the file it may stand for all
	variable string // the environment variable, where it is not named after the flag
	secret   bool   // its value is shown to nobody
}

// env is the setting's environment variable.
func (s setting) env() string {
	if s.variable != "" {
		return s.variable
	}
	return "AEP_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// take applies a value. An error does not tell the password of a URL.
func (s setting) take(c *config, v string) error {
	err := s.apply(c, v)
	if seen := shownURL(v); err != nil && s.arg == "URL" && seen != v {
		quoted := strconv.Quote(v)
		return errors.New(strings.NewReplacer(quoted, strconv.Quote(seen), v, seen).Replace(err.Error()))
	}
	return err
}

// shown is a value for people.
func (s setting) shown(v string) string {
	switch {
	case s.secret:
		return notShown
	case s.arg == "URL":
		return shownURL(v)
	}
	return v
}

const notShown = "(hidden)"

// shownURL is a URL without what stands before its host, and may be a password;
// also where it is none.
func shownURL(v string) string {
	i := max(strings.LastIndex(v, "@"), strings.LastIndex(v, "%40"))
	if i < 0 {
		return v
	}
	scheme, _, found := strings.Cut(v[:i], "//")
	if !found {
		return notShown + v[i:]
	}
	return scheme + "//" + notShown + v[i:]
}

var settings = []setting{
	{name: "collector", arg: "URL", usage: "send events to this AEP collector instead of the per-user one",
		apply: func(c *config, v string) (err error) { c.Collector, err = parseCollector(v); return }},
	{name: "token", arg: "TOKEN", secret: true, usage: "bearer token of the collector; a --token-file keeps it out of process lists",
		apply: func(c *config, v string) (err error) { c.Token, err = parseToken(v); return }},
	{name: "token-file", arg: "FILE", usage: "file that holds the bearer token",
		apply: func(c *config, v string) error { c.TokenFile = v; return nil }},
	{name: "ca-file", arg: "FILE", usage: "trust a collector by the certificates in this file alone, as PEM, instead of the system's; read again when it changes",
		apply: func(c *config, v string) error { c.TLS.ca = v; return nil }},
	{name: "client-cert", arg: "FILE", usage: "show the collector this certificate, as PEM; read again when it changes",
		apply: func(c *config, v string) error { c.TLS.cert = v; return nil }},
	{name: "client-key", arg: "FILE", usage: "the key of --client-cert",
		apply: func(c *config, v string) error { c.TLS.key = v; return nil }},
	{name: "plain-http", usage: "send the token to a collector on another host without TLS too: the network on the way is trusted",
		apply: func(c *config, v string) (err error) { c.PlainHTTP, err = parseSwitch(v); return }},
	{name: "capture", arg: "LEVEL", usage: "how much events may say: none, metadata, redacted or full", def: "metadata",
		apply: func(c *config, v string) (err error) { c.Capture, err = event.ParseLevel(v); return }},
	{name: "capture-for", arg: "CATEGORY=LEVEL", usage: "the same for one category", def: "attention=redacted", list: true,
		apply: applyCaptureFor},
	{name: "secret-env", arg: "NAME", usage: "environment variable whose value is hidden wherever it appears", list: true,
		apply: applySecretEnv},
	{name: "no-pii", usage: "leave e-mail addresses and phone numbers in redacted text",
		apply: func(c *config, v string) (err error) { c.NoPII, err = parseSwitch(v); return }},
	{name: "log-dir", arg: "DIR", usage: "where session logs are kept", def: "~/.aep/logs",
		apply: func(c *config, v string) (err error) { c.LogDir, err = parseDir(v); return }},
	{name: "listen", arg: "ADDR|off", usage: "where people reach the per-user collector; off starts and joins none", def: "127.0.0.1:8787",
		apply: func(c *config, v string) (err error) { c.Listen, err = parseListen(v); return }},
	{name: "adapter", arg: "NAME", usage: "the adapter to use, where the command does not tell (see aep-wrap adapters)",
		apply: func(c *config, v string) (err error) { c.Adapter, err = parseAdapter(v); return }},
	{name: "attach", arg: "URL", usage: "have the agent join this running server of its kind (opencode, kilo), or new: one of ours",
		apply: func(c *config, v string) (err error) { c.Attach, err = parseAttach(v); return }},
	{name: "dual", usage: "let a question of the agent's be answered both in its own dialog and from afar, where that needs another way to run it (codex, qwen)",
		apply: func(c *config, v string) (err error) { c.Dual, err = parseSwitch(v); return }},
	{name: "agent", arg: "NAME", usage: "the agent name that events carry (default: the adapter's)",
		apply: func(c *config, v string) (err error) { c.Agent, err = parseAgent(v); return }},
	{name: "hold", arg: "DUR", usage: "how long a question of the agent's waits for an answer from afar; 0 takes none (default: an hour where its own dialog stays usable, else 8s)",
		apply: func(c *config, v string) (err error) { c.Hold, err = parseHold(v); return }},
	{name: "gate", arg: "TOOLS", usage: "tools for which somebody must be asked, patterns with * and commas between them", list: true,
		apply: func(c *config, v string) error { c.Gate = append(c.Gate, splitList(v)...); return nil }},
	{name: "gate-rule", arg: "FILE", usage: "which tools may be used and how many calls a run may make, as JSON: {\"tools\": [NAME], \"calls\": {NAME: N}}; decided here, at once, and the file may change meanwhile",
		apply: func(c *config, v string) error { c.GateRule = v; return nil }},
	{name: "allow", arg: "VERB", usage: "a command that is accepted from afar beyond the usual: instruct", list: true,
		apply: func(c *config, v string) (err error) { c.Allow, err = parseVerbs(c.Allow, v); return }},
	{name: "deny", arg: "VERB", usage: "a command that is not accepted: respond, cancel, pause, resume, instruct, or *", list: true,
		apply: func(c *config, v string) (err error) { c.Deny, err = parseVerbs(c.Deny, v); return }},
	{name: "answer-after", arg: "DUR", usage: "refuse an answer that comes sooner after its question: nobody has read it",
		apply: func(c *config, v string) (err error) { c.AnswerAfter, err = parseWait(v); return }},
	{name: "senders", arg: "NAME", usage: "accept commands only of senders by this agent name", list: true,
		apply: func(c *config, v string) error { c.Senders = append(c.Senders, splitList(v)...); return nil }},
	{name: "notify", arg: "URL", secret: true, usage: "call people when an agent asks something: ntfy://HOST/TOPIC, or the https:// address of a webhook; heard by the collector, when it starts",
		apply: func(c *config, v string) (err error) { c.Notify, err = v, collector.ParseNotify(v); return }},
	{name: "notify-capture", arg: "LEVEL", usage: "how much a notification says: none, metadata, or redacted, with the question itself", def: "metadata",
		apply: func(c *config, v string) (err error) { c.NotifyAt, err = parseNotifyLevel(v); return }},
	{name: "page-url", arg: "URL", usage: "the address by which others reach the collector's page, as links and notifications give it",
		apply: func(c *config, v string) (err error) { c.PageURL, err = parsePage(v); return }},
	{name: "json", usage: "write what is meant for people as JSON",
		apply: func(c *config, v string) (err error) { c.JSON, err = parseSwitch(v); return }},
	{name: "quiet", usage: "print nothing but the agent's own output",
		apply: func(c *config, v string) (err error) { c.Quiet, err = parseSwitch(v); return }},

	{name: "watch", arg: "PATH", serve: true, list: true, usage: "a session log, or a directory of them with all below it, that serve follows",
		apply: func(c *config, v string) error { c.Watch = append(c.Watch, v); return nil }},
	{name: "hooks", arg: "DIR", serve: true, list: true, variable: "AEP_HOOK_DIRS", usage: "a directory from which serve takes hooks, made where it is not there",
		apply: func(c *config, v string) error { c.Hooks = append(c.Hooks, v); return nil }},
	{name: "archive", arg: "DIR", serve: true, usage: "keep the files of hooks that serve took in this directory instead of deleting them",
		apply: func(c *config, v string) error { c.Archive = v; return nil }},
	{name: "from", arg: "WHERE", serve: true, def: string(follow.Saved), usage: "where serve begins in session logs: saved (where it ended; what it never followed, from its start), start, or now",
		apply: func(c *config, v string) (err error) { c.From, err = parseFrom(v); return }},
	{name: "hook-listen", arg: "ADDR", serve: true, usage: "a loopback address at which serve takes hooks by HTTP, such as 127.0.0.1:9465",
		apply: func(c *config, v string) (err error) { c.HookListen, err = parseLoopback(v); return }},
	{name: "hook-socket", arg: "PATH", serve: true, usage: "a unix socket at which serve takes hooks from aep-hook",
		apply: func(c *config, v string) error { c.HookSocket = v; return nil }},
	{name: "hook-socket-group", arg: "GROUP", serve: true, usage: "a group, by name or number, whose users reach --hook-socket too",
		apply: func(c *config, v string) (err error) { c.HookSocketGroup, err = v, checkGroup(v); return }},
	{name: "hook-secret-file", arg: "FILE", serve: true, def: "~/.aep/hook-secret", usage: "file of the secret in the path of --hook-listen's URL, made where it is not there",
		apply: func(c *config, v string) error { c.HookSecretFile = v; return nil }},
	{name: "health-listen", arg: "ADDR|off", serve: true, def: "127.0.0.1:9464", usage: "where serve tells of itself: /healthz, /readyz and /metrics",
		apply: func(c *config, v string) (err error) { c.HealthListen, err = parseListen(v); return }},
	{name: "drain", arg: "DUR", serve: true, def: "10s", usage: "how long serve, told to end, goes on sending what is left",
		apply: func(c *config, v string) (err error) { c.Drain, err = parseWait(v); return }},
	{name: "keep-for", arg: "DUR", serve: true, def: "30d", usage: "remove session logs that were not written to for so long, such as 12h or 30d, and archived hooks; 0 keeps them for ever",
		apply: func(c *config, v string) (err error) { c.Keep.age, err = parseAge(v); return }},
	{name: "keep-size", arg: "SIZE", serve: true, def: "2GiB", usage: "remove the oldest session logs until all are no more than this, such as 500MB; 0 keeps all",
		apply: func(c *config, v string) (err error) { c.Keep.size, err = parseSize(v); return }},
	{name: "runtime-listen", arg: "ADDR", serve: true, usage: "where serve serves the Agent Execution Protocol too (see aep-wrap runtime)",
		apply: func(c *config, v string) (err error) { c.Runtime.listen, err = parseLoopback(v); return }},
	{name: "runtime-profile", arg: "FILE", serve: true, usage: "file of the commands that its agents run",
		apply: func(c *config, v string) error { c.Runtime.profiles = v; return nil }},
	{name: "runtime-tokens", arg: "FILE", serve: true, usage: "file of its tokens and what each allows; read again when it changes",
		apply: func(c *config, v string) error { c.Runtime.tokens = v; return nil }},
	{name: "runtime-dir", arg: "DIR", serve: true, usage: "where it keeps agents, runs, their logs and files (default ~/.aep/runtime)",
		apply: func(c *config, v string) error { c.Runtime.dir = v; return nil }},
}

// given is a setting's flag: the words as they were typed, checked later.
type given struct {
	setting
	values []string
}

func (g *given) String() string { return strings.Join(g.values, ",") }

// Type is the placeholder in help; pflag knows a switch by the word bool.
func (g *given) Type() string { return cmp.Or(g.arg, "bool") }

func (g *given) Set(v string) error {
	if g.list {
		g.values = append(g.values, v)
	} else {
		g.values = []string{v}
	}
	return nil
}

// addSettings makes the settings flags of fs: those of every command, or
// those of serve.
func addSettings(fs *pflag.FlagSet, serve bool) {
	for _, s := range settings {
		if s.serve != serve {
			continue
		}
		usage := s.usage
		if s.def != "" {
			usage += " (default " + s.def + ")"
		}
		f := fs.VarPF(&given{setting: s}, s.name, "", usage+" ["+s.env()+"]")
		if s.arg == "" {
			f.NoOptDefVal = "true"
		}
	}
}

// source is where a setting's value was found, as an error names it.
type source struct {
	where  string
	values []string
	lines  []int // of each value, where they stand on lines of their own
}

// of is how an error names value i.
func (s source) of(i int) string {
	if s.lines == nil {
		return s.where
	}
	return fmt.Sprintf("%s (line %d)", s.where, s.lines[i])
}

// loadConfig joins flags, environment, file and defaults, each setting from
// the first of them that has it. An empty environment variable counts as not
// set. The first bad value is an error that says what to write instead.
func loadConfig(fs *pflag.FlagSet, getenv func(string) string, p paths) (config, error) {
	c, _, errs := loadSettings(fs, getenv, p, false)
	if len(errs) > 0 {
		return config{}, usageError("%w", errs[0])
	}
	return c, nil
}

// loadSettings is loadConfig that goes on after an error, and says where each
// setting was found. With all, those that the command has no flag for count
// too.
func loadSettings(fs *pflag.FlagSet, getenv func(string) string, p paths, all bool) (config, map[string]source, []error) {
	file, errs := readConfigFile(p.config(), p.configGiven())
	c := config{Hold: -1}
	found := map[string]source{}
	for _, s := range settings {
		if !all && !s.isFlagOf(fs) {
			continue
		}
		from := s.find(fs, getenv, file)
		found[s.name] = from
		for i, v := range from.values {
			if err := s.take(&c, v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", from.of(i), err))
			}
		}
	}
	var err error
	if c.TokenFile != "" && c.Token == "" {
		if c.Token, err = readTokenFile(p.expand(c.TokenFile)); err != nil {
			errs = append(errs, fmt.Errorf("--token-file: %w", err))
		}
	}
	c.TLS = c.TLS.at(p)
	if _, err = c.TLS.config(); err != nil {
		errs = append(errs, err)
	}
	c.LogDir = p.expand(c.LogDir)
	if c.LogDir, err = filepath.Abs(c.LogDir); err != nil {
		errs = append(errs, fmt.Errorf("--log-dir: %w: write an absolute path", err))
	}
	return c, found, errs
}

func readTokenFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return parseToken(strings.TrimSpace(string(b)))
}

// isFlagOf says whether a command has the setting: another's flag may have its
// name.
func (s setting) isFlagOf(fs *pflag.FlagSet) bool {
	f := fs.Lookup(s.name)
	if f == nil {
		return false
	}
	_, ok := f.Value.(*given)
	return ok
}

func (s setting) find(fs *pflag.FlagSet, getenv func(string) string, file map[string]source) source {
	if s.isFlagOf(fs) && fs.Changed(s.name) {
		return source{where: "--" + s.name, values: fs.Lookup(s.name).Value.(*given).values}
	}
	if v := getenv(s.env()); v != "" {
		if s.list {
			return source{where: s.env(), values: splitList(v)}
		}
		return source{where: s.env(), values: []string{v}}
	}
	if from, ok := file[s.name]; ok {
		return from
	}
	if s.def == "" {
		return source{}
	}
	return source{where: "the default of --" + s.name, values: []string{s.def}}
}

func splitList(v string) []string {
	var out []string
	for w := range strings.SplitSeq(v, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

// readConfigFile reads the YAML file into the settings it names, and says all
// that is wrong with it. A file that is not there is empty, unless somebody
// named it; an unknown key is an error, with its line.
func readConfigFile(path string, named bool) (map[string]source, []error) {
	if path == "" {
		return nil, nil
	}
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err == nil && !fi.Mode().IsRegular() {
		// A pipe would be waited for, and an agent with it.
		return nil, []error{fmt.Errorf("%s is not a regular file: remove it, or put the configuration there", path)}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, []error{fmt.Errorf("configuration: %w", err)}
	}
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	var doc *ast.File
	err = guardYAML(raw, func() (err error) { doc, err = parser.ParseBytes(raw, 0); return })
	var errs []error
	if odd := oddYAML(nil); errors.As(err, &odd) {
		for _, o := range odd {
			errs = append(errs, fmt.Errorf("%s:%d: %s", path, o.line, o.why))
		}
		return nil, errs
	}
	if err != nil {
		return nil, []error{notYAML(path, err)}
	}
	found := map[string]source{}
	for _, d := range doc.Docs {
		if d.Body == nil {
			continue
		}
		rows, err := mappingRows(d.Body)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", path, line(d.Body), err))
		}
		for _, row := range rows {
			key := row.Key.GetToken().Value
			where := fmt.Sprintf("%s:%d: %s", path, row.Key.GetToken().Position.Line, key)
			i := slices.IndexFunc(settings, func(s setting) bool { return s.name == key })
			if i < 0 {
				errs = append(errs, fmt.Errorf("%s: no such key; the keys are %s", where, settingNames()))
				continue
			}
			if _, twice := found[key]; twice {
				errs = append(errs, fmt.Errorf("%s: given twice", where))
				continue
			}
			values, lines, err := fileValues(settings[i], row.Value)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", where, err))
				continue
			}
			found[key] = source{where, values, lines}
		}
	}
	return found, errs
}

// The bounds of a configuration file: beyond them the parser takes minutes.
const (
	maxConfig  = 1 << 20
	maxNesting = 64
)

// guardYAML reads a file of the user's by parse, unless the parser would be
// lost in it; and some files that are not YAML make it panic.
func guardYAML(raw []byte, parse func() error) (err error) {
	if len(raw) > maxConfig || nesting(raw) > maxNesting {
		return errors.New("it is too large, or nested too deep")
	}
	defer func() {
		if recover() != nil {
			err = errors.New("it cannot be read")
		}
	}()
	if odd := findOdd(lexer.Tokenize(string(raw))); len(odd) > 0 {
		return odd
	}
	return parse()
}

// oddYAML is what YAML allows and a file of settings does not need: it would be
// taken for something else, or be lost.
type oddYAML []oddPlace

type oddPlace struct {
	line int
	why  string
}

func (o oddYAML) Error() string { return fmt.Sprintf("line %d: %s", o[0].line, o[0].why) }

// tagged are the tags that a value may carry, and what it is then.
var tagged = map[string][]token.Type{
	"!!str": {token.StringType, token.SingleQuoteType, token.DoubleQuoteType, token.LiteralType, token.FoldedType, token.BoolType, token.NullType,
		token.IntegerType, token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType, token.FloatType, token.InfinityType, token.NanType},
	"!!int":   {token.IntegerType},
	"!!float": {token.IntegerType, token.FloatType},
	"!!bool":  {token.BoolType},
}

func findOdd(tokens token.Tokens) (odd oddYAML) {
	tell := func(t *token.Token, format string, args ...any) {
		odd = append(odd, oddPlace{t.Position.Line, fmt.Sprintf(format, args...)})
	}
	begun, over := false, false // the document
	for _, t := range tokens {
		switch t.Type {
		case token.CommentType:
			continue
		case token.DirectiveType:
			tell(t, "want settings alone, without directives")
			return odd
		case token.DocumentEndType:
			over = true
			continue
		}
		if over || begun && t.Type == token.DocumentHeaderType {
			tell(t, "a second document begins: want all in one")
			return odd
		}
		begun = true
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			tell(t, "%q: want each value where it holds, without anchors and aliases; a text that begins so wants quotes", t.Value)
		case token.TagType:
			if t.Next == nil || !slices.Contains(tagged[t.Value], t.Next.Type) {
				tell(t, "the tag %s: want a plain value", t.Value)
			}
		}
	}
	return odd
}

// nesting is how deep brackets stand in each other.
func nesting(raw []byte) (deepest int) {
	depth := 0
	for _, c := range raw {
		switch c {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth = max(0, depth-1)
		}
	}
	return deepest
}

func line(n ast.Node) int { return n.GetToken().Position.Line }

// notYAML is what the parser found, which begins with [line:column].
func notYAML(path string, err error) error {
	why, _, _ := strings.Cut(err.Error(), "\n")
	if at, rest, ok := strings.Cut(strings.TrimPrefix(why, "["), "] "); ok && strings.HasPrefix(why, "[") {
		line, _, _ := strings.Cut(at, ":")
		return fmt.Errorf("%s:%s: not YAML: %s", path, line, rest)
	}
	return fmt.Errorf("%s: not YAML: %s", path, why)
}

func mappingRows(n ast.Node) ([]*ast.MappingValueNode, error) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, nil
	}
	return nil, errors.New("want `key: value` lines")
}

// fileValues are a setting's values as they stand in the file: a scalar, for
// a list also a sequence of scalars, or `name: value` lines for name=value.
func fileValues(s setting, n ast.Node) (values []string, lines []int, err error) {
	if v, ok := scalar(n); ok {
		return []string{v}, nil, nil
	}
	if !s.list {
		return nil, nil, errors.New("want one value")
	}
	add := func(prefix string, n ast.Node) error {
		v, ok := scalar(n)
		if !ok {
			return fmt.Errorf("line %d: want a plain value", line(n))
		}
		values, lines = append(values, prefix+v), append(lines, line(n))
		return nil
	}
	if seq, ok := n.(*ast.SequenceNode); ok {
		for _, item := range seq.Values {
			if err := add("", item); err != nil {
				return nil, nil, err
			}
		}
		return values, lines, nil
	}
	rows, err := mappingRows(n)
	if err != nil || !strings.Contains(s.arg, "=") {
		return nil, nil, errors.New("want a list: `- value` lines")
	}
	for _, row := range rows {
		if err := add(row.Key.GetToken().Value+"=", row.Value); err != nil {
			return nil, nil, err
		}
	}
	return values, lines, nil
}

func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.TagNode:
		return scalar(n.Value)
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return strings.TrimSpace(n.Value.Value), true
	case *ast.NullNode:
		return "", false
	case ast.ScalarNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func settingNames() string {
	names := make([]string, len(settings))
	for i, s := range settings {
		names[i] = s.name
	}
	return strings.Join(names, ", ")
}

func parseNotifyLevel(v string) (event.Level, error) {
	l, err := event.ParseLevel(v)
	if err == nil && l > event.Redacted {
		return l, fmt.Errorf("%q: want none, metadata or redacted: more than that is sent to nobody's telephone", v)
	}
	return l, err
}

func parsePage(v string) (string, error) {
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("%q: want the page's origin, such as https://agents.example", v)
	}
	return u.Scheme + "://" + u.Host, nil
}

func parseSwitch(v string) (bool, error) {
	b, err := strconv.ParseBool(strings.ToLower(v))
	if err != nil {
		return false, fmt.Errorf("%q: want true or false", v)
	}
	return b, nil
}

func parseCollector(v string) (string, error) {
	u, err := url.Parse(v)
	if err == nil { // of the socket: its origin is meant
		switch u.Scheme {
		case "ws":
			u.Scheme = "http"
		case "wss":
			u.Scheme = "https"
		}
	}
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "", fmt.Errorf("%q: want the collector's origin, such as https://collector.example:8787", v)
	case u.User != nil:
		return "", errors.New("want no credentials in the URL: give them by --token-file")
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%q: want no query and no fragment, only %s://%s", v, u.Scheme, u.Host)
	case strings.Trim(u.Path, "/") == "events", strings.Trim(u.Path, "/") == "socket":
		u.Path = "" // the endpoint itself: its origin is meant
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u.String(), nil
}

func parseToken(v string) (string, error) {
	if v == "" {
		return "", errors.New("the token is empty")
	}
	for _, r := range v {
		if r <= ' ' || r > '~' {
			return "", errors.New("want a token of visible ASCII characters, without spaces")
		}
	}
	return v, nil
}

// parseAdapter reads an adapter's name; which one auto is, the input tells.
func parseAdapter(v string) (string, error) {
	if v == "" || v == auto {
		return v, nil
	}
	_, err := findAdapter(v)
	return v, err
}

// parseVerbs adds to a list of commands. Types that only one adapter knows are
// held to it when there is one.
func parseVerbs(list []string, v string) ([]string, error) {
	words := splitList(v)
	for _, w := range words {
		if strings.Contains(w, ".") {
			continue
		}
		if _, _, err := control.Accepts(control.Can{}, []string{w}, nil); err != nil {
			return list, fmt.Errorf("%q: no such verb; there are respond, cancel, pause, resume, instruct and *", w)
		}
	}
	return append(list, words...), nil
}

// parseHold reads a window; 0 and off are none.
func parseHold(v string) (time.Duration, error) {
	if v == off {
		return 0, nil
	}
	return parseWait(v)
}

func parseWait(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if v == "0" {
		d, err = 0, nil
	}
	switch {
	case err != nil || d < 0:
		return 0, fmt.Errorf("%q: want a duration, such as 90s, 20m or 1h", v)
	case d > longest:
		return 0, fmt.Errorf("%q: want 24h at most", v)
	}
	return d, nil
}

// longest is how long anything is waited for: runtimes count the time of their
// hooks in numbers that overflow.
const longest = 24 * time.Hour

func parseDir(v string) (string, error) {
	if strings.TrimSpace(v) == "" {
		return "", errors.New("want a directory, such as ~/.aep/logs")
	}
	return v, nil
}

func parseListen(v string) (string, error) {
	if v == off {
		return v, nil
	}
	_, port, err := net.SplitHostPort(v)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", fmt.Errorf("%q: want HOST:PORT, such as 127.0.0.1:8787, or off", v)
	}
	return v, nil
}

func parseFrom(v string) (string, error) {
	switch f := follow.From(v); f {
	case follow.Saved, follow.Start, follow.Now:
		return v, nil
	}
	return "", fmt.Errorf("%q: want saved, start or now", v)
}

// parseLoopback reads an address that only this machine reaches.
func parseLoopback(v string) (string, error) {
	if v == off {
		return "", nil
	}
	if _, err := parseListen(v); err != nil || !loopback(v) {
		return "", fmt.Errorf("%q: want a loopback address, such as 127.0.0.1:9465", v)
	}
	return v, nil
}

// groupID is a group's number, of its name or itself.
func groupID(v string) (int, error) {
	if n, err := strconv.Atoi(v); err == nil && n >= 0 {
		return n, nil
	}
	g, err := user.LookupGroup(v)
	if err != nil {
		return 0, fmt.Errorf("%q: want a group that is known here, or its number", v)
	}
	return strconv.Atoi(g.Gid)
}

func checkGroup(v string) error {
	_, err := groupID(v)
	return err
}

// loopback says whether only this machine reaches an address.
func loopback(listen string) bool {
	host, _, _ := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	return listen == off || host == "localhost" || ip != nil && ip.IsLoopback()
}

func parseAgent(v string) (string, error) {
	if v == "" || len(v) > 128 {
		return "", errors.New("want a name of 1 to 128 characters, such as claude-code")
	}
	for i, r := range v {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("._-", r)) {
			return "", fmt.Errorf("%q: want letters, digits, '.', '_' and '-', such as claude-code", v)
		}
	}
	return v, nil
}

func applyCaptureFor(c *config, v string) error {
	category, level, ok := strings.Cut(v, "=")
	if !ok {
		return fmt.Errorf("%q: want CATEGORY=LEVEL, such as attention=redacted", v)
	}
	if !slices.Contains(captureCategories, category) {
		return fmt.Errorf("%q: no such category; want one of %s", category, strings.Join(captureCategories, ", "))
	}
	l, err := event.ParseLevel(level)
	if err != nil {
		return err
	}
	if c.CaptureFor == nil {
		c.CaptureFor = map[string]event.Level{}
	}
	c.CaptureFor[category] = l
	return nil
}

// captureCategories are the categories whose ceiling can be set, the vendors'
// own (x) among them.
var captureCategories = []string{"agent", "session", "run", "progress", "tool", "delegation", "attention",
	"resource", "error", "state", "assessment", "message", "control", "x"}

func applySecretEnv(c *config, v string) error {
	if v == "" || strings.ContainsAny(v, "= \t") {
		return fmt.Errorf("%q: want the name of an environment variable, without its value", v)
	}
	c.SecretEnv = append(c.SecretEnv, v)
	return nil
}
