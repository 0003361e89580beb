package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"aep-wrap/adapters"
	"aep-wrap/adapters/all"
	"aep-wrap/agent"
	"aep-wrap/agent/hookclient"
	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

// How long a check may take, and what it wants.
const (
	checkTime = 10 * time.Second
	agentTime = 30 * time.Second // of an agent to tell its version
	wantSpace = 100 << 20        // bytes free for session logs
	maxSkew   = 30 * time.Second // between this clock and the collector's
)

func newDoctorCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor [AGENT]",
		Short: "Find out what keeps events from being told, and how to mend it",
		Long: `Looks at everything that an event needs on its way: the agent and its version,
whether its hooks would be installed and heard, the configuration, the token, the
clock, the session logs, the run directory, the collector. Then a test event goes
the whole way: hook helper, socket, log, collector.

Without AGENT every agent that is installed is looked at. The exit code is 1 when
something was found; each finding says what to do.`,
		Example: `  aep-wrap doctor
  aep-wrap doctor claude
  aep-wrap doctor --json | jq 'select(.state == "finding")'`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeAdapter(isAgent),
		Annotations:       map[string]string{noConfig: ""},
		RunE: func(cmd *cobra.Command, args []string) error {
			d := &doctor{app: a, made: readBuildInfo().Time, now: time.Now, space: freeSpace, watch: canWatch}
			return d.run(cmd, args)
		},
	}
}

// The states of what was looked at. A finding wants mending, a note does not.
const (
	stateOK      = "ok"
	stateNote    = "note"
	stateFinding = "finding"
)

// symptom is what a check found.
type symptom struct {
	Check string `json:"check"`
	Agent string `json:"agent,omitempty"`
	State string `json:"state"`
	What  string `json:"what"`
	Fix   string `json:"fix,omitempty"`
}

// doctor looks for what keeps events from being told.
type doctor struct {
	app   *app
	given map[string]source // where the settings come from
	found []symptom

	made  string // when this program was
	now   func() time.Time
	space func(dir string) (int64, error) // bytes free
	watch func() error                    // whether files can be watched
}

func (d *doctor) say(f symptom) { d.found = append(d.found, f) }
func (d *doctor) ok(check, format string, args ...any) {
	d.say(symptom{Check: check, State: stateOK, What: fmt.Sprintf(format, args...)})
}
func (d *doctor) note(check, fix, format string, args ...any) {
	d.say(symptom{Check: check, State: stateNote, What: fmt.Sprintf(format, args...), Fix: fix})
}
func (d *doctor) bad(check, fix, format string, args ...any) {
	d.say(symptom{Check: check, State: stateFinding, What: fmt.Sprintf(format, args...), Fix: fix})
}

func (d *doctor) run(cmd *cobra.Command, args []string) error {
	a := d.app
	var errs []error
	if a.cfg, d.given, errs = loadSettings(cmd.Flags(), a.Getenv, a.paths, false); len(errs) > 0 {
		d.bad("configuration", "mend it: "+tilde(a.paths.config(), a.paths.home)+", the AEP_ variables, or the flags", "%v", errs[0])
		return d.print(cmd)
	}
	d.configuration()
	if a.paths.note != "" {
		d.bad("state", "set HOME to a directory of yours", "%s", a.paths.note)
	}
	if err := d.agents(args); err != nil {
		return err
	}
	d.profile()
	d.clock()
	d.logs()
	d.inotify()
	d.token()
	if d.collector() {
		d.road()
	}
	return d.print(cmd)
}

// configuration tells where settings come from, and of the switch that leaves
// everything else without an effect.
func (d *doctor) configuration() {
	a := d.app
	file := tilde(a.paths.config(), a.paths.home)
	if _, err := os.Stat(a.paths.config()); err == nil {
		d.ok("configuration", "%s", file)
	} else {
		d.ok("configuration", "the defaults: there is no %s", file)
	}
	if a.switchedOff() {
		d.bad("wrapping", "unset AEP_WRAP (aepwrap on, where the shell's functions are installed)", "AEP_WRAP=off: agents run bare, and nothing of them is told")
	}
}

// print says what was found; a finding is exit code 1.
func (d *doctor) print(cmd *cobra.Command) error {
	a := d.app
	bad := slices.ContainsFunc(d.found, func(f symptom) bool { return f.State == stateFinding })
	asJSON := a.cfg.JSON || cmd.Flag("json").Changed && cmd.Flag("json").Value.String() == "true"
	if asJSON {
		enc := json.NewEncoder(a.Stdout)
		for _, f := range d.found {
			if err := enc.Encode(f); err != nil {
				return err
			}
		}
	} else {
		color := isTerminal(a.Stdout) && a.Getenv("NO_COLOR") == "" && a.Getenv("TERM") != "dumb"
		for _, f := range d.found {
			fmt.Fprintln(a.Stdout, f.line(color))
		}
	}
	if bad {
		return &exitError{code: 1}
	}
	return nil
}

var stateColors = map[string]string{stateOK: "32", stateNote: "33", stateFinding: "31"}

func (f symptom) line(color bool) string {
	state := fmt.Sprintf("%-8s", f.State)
	if color {
		state = "\x1b[" + stateColors[f.State] + "m" + state + "\x1b[0m"
	}
	what := f.What
	if f.Agent != "" {
		what = f.Agent + ": " + what
	}
	line := fmt.Sprintf("%s %-14s %s", state, f.Check, visible(what))
	if f.Fix != "" && f.State != stateOK {
		line += "\n" + strings.Repeat(" ", 24) + visible("→ "+f.Fix)
	}
	return line
}

// ---- the agents

func (d *doctor) agents(args []string) error {
	if len(args) > 0 {
		ad, err := findAdapter(args[0])
		if err != nil {
			return err
		}
		if !isAgent(&ad) {
			return usageError("%s is not an agent that is installed; want one of %s", args[0], strings.Join(adapterNames(), ", "))
		}
		d.agent(ad, true)
		return nil
	}
	any := false
	for _, ad := range all.List() {
		if isAgent(&ad) && d.agent(ad, false) {
			any = true
		}
	}
	if !any {
		d.note("agent", "install one, or name it: aep-wrap doctor AGENT", "none of the agents that are known is in PATH")
	}
	return nil
}

// agent looks at one agent; false is that it is not installed.
func (d *doctor) agent(ad adapters.Adapter, wanted bool) bool {
	a := d.app
	first := len(d.found)
	defer func() {
		for i := first; i < len(d.found); i++ {
			d.found[i].Agent = ad.Name
		}
	}()
	var path, command string
	var err error
	for _, command = range ad.Command {
		if path, err = agent.LookPath(command, a.Getenv("PATH")); err == nil {
			break
		}
	}
	if err != nil {
		if wanted {
			d.bad("agent", "install it, or put the directory of "+ad.Command[0]+" into PATH", "%s is not in PATH", strings.Join(ad.Command, ", "))
		}
		return false
	}
	d.ok("agent", "%s", tilde(path, a.paths.home))
	d.version(ad, path)
	w, wired := d.hooks(ad, path, command)
	for _, c := range ad.Checks {
		l := &launch{app: a, path: path, args: []string{command}, env: a.agentEnv()}
		switch {
		case c.Ask == nil:
			d.check(c, l, wanted)
		case wired && wanted: // the agent is started for it
			d.ask(c, l, w)
		}
	}
	return true
}

var versionNumber = regexp.MustCompile(`\d+\.\d+\.\d+[0-9A-Za-z.+-]*`)

func (d *doctor) version(ad adapters.Adapter, path string) {
	out, err := d.output(agentTime, path, "--version")
	have := strings.TrimRight(versionNumber.FindString(out), ".")
	switch {
	case err != nil:
		d.bad("version", "see what "+path+" --version says", "it does not tell its version: %v", err)
	case have == "":
		d.note("version", "", "it tells no version: %q", firstOf(out))
	case ad.Pinned != "" && have != ad.Pinned:
		d.note("version", "what it does otherwise than "+ad.Pinned+" may be told as x."+ad.Name+".* or not at all", "%s, where the tables were checked with %s", have, ad.Pinned)
	default:
		d.ok("version", "%s, with which the tables were checked", have)
	}
}

func firstOf(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

// output runs a command of the user's for a bounded time.
func (d *doctor) output(patience time.Duration, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.WaitDelay = d.app.agentEnv(), time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = fmt.Errorf("nothing in %v", patience)
	}
	return string(out), err
}

// hooks asks the adapter what it would do to a launch: what it cannot hook, it
// says, and why.
func (d *doctor) hooks(ad adapters.Adapter, path, command string) (w adapters.Wiring, wired bool) {
	l := &launch{app: d.app, path: path, args: []string{command}, env: d.app.agentEnv()}
	seen := l.seen()
	seen.TTY = true
	read := map[string]string{} // what the adapter looked into
	seen.ReadFile = func(path string) ([]byte, error) {
		b, err := os.ReadFile(path)
		if err == nil {
			read[path] = string(b)
		}
		return b, err
	}
	end := adapters.Endpoint{
		HookURL: "http://127.0.0.1:1/hook/doctor", OTLPURL: "http://127.0.0.1:1/otlp/doctor", Helper: helper(ad.Name), Dir: "/tmp/aep-doctor", Socket: "/tmp/aep-doctor/hook.sock",
		Port: 1, Secret: "doctor",
	}
	w, err := ad.Launch.Wire(seen, end)
	switch {
	case err != nil:
		d.bad("hooks", "mend the file that it names, or run the agent bare", "its launch cannot be changed: %v", err)
		return w, false
	case len(w.Notes) > 0:
		for _, n := range w.Notes {
			d.bad("hooks", d.mend(n, read, ad.Name), "%s", strings.TrimPrefix(n, ad.Command[0]+": "))
		}
	default:
		d.ok("hooks", "nothing keeps them from being installed")
	}
	hooked := mentions(w, end.HookURL, end.Socket)
	var speak, silent []string
	for _, c := range channelsOf(ad) {
		switch {
		case c == adapters.Process, c == adapters.Drafts, c == adapters.Log: // of other launches
		case c == adapters.Stream && w.Stdout == "", (c == adapters.Hook || c == adapters.ServerBeside) && !hooked,
			c == adapters.Transcript && ad.Logs == nil && len(w.Logs) == 0,
			(c == adapters.Server || c == adapters.ServerBeside) && w.Server == nil:
			silent = append(silent, string(c))
		default:
			speak = append(speak, string(c))
		}
	}
	what := "heard: " + strings.Join(speak, ", ")
	if len(silent) > 0 {
		what += "; silent in a launch without further words: " + strings.Join(silent, ", ")
	}
	d.ok("channels", "%s", what)
	if w.LogRoot != "" {
		root := w.LogRoot
		if of := slices.IndexFunc(w.Overlays, func(o adapters.Overlay) bool { return filepath.Join("/tmp/aep-doctor", o.Dir) == root }); of >= 0 {
			root = w.Overlays[of].Of
		}
		if err := unix.Access(root, unix.R_OK|unix.X_OK); err != nil && !errors.Is(err, unix.ENOENT) {
			d.bad("session log", "give yourself the right to read it", "%s: %v", tilde(root, d.app.paths.home), err)
		}
	}
	return w, len(w.Notes) == 0
}

// mentions says whether a launch is told of one of these words.
func mentions(w adapters.Wiring, words ...string) bool {
	all := slices.Concat(w.Args, slices.Collect(maps.Values(w.SetEnv)))
	for _, b := range w.Files {
		all = append(all, string(b))
	}
	return slices.ContainsFunc(all, func(s string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
	})
}

// check looks for what an adapter knows of that its wiring does not meet. What
// is about this folder is a finding for who asks about the agent here.
func (d *doctor) check(c adapters.Check, l *launch, wanted bool) {
	seen := l.seen()
	files := map[string][]byte{}
	for _, pattern := range c.Files(seen) {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if b, err := os.ReadFile(path); err == nil {
				files[path] = b
			}
		}
	}
	what := c.Found(seen, files)
	switch {
	case what == "":
		d.ok(c.Name, "nothing is in the way")
	case c.Here && !wanted:
		d.note(c.Name, c.Fix, "%s", what)
	default:
		d.bad(c.Name, c.Fix, "%s", what)
	}
}

// ask has the agent say itself what it makes of a launch.
func (d *doctor) ask(c adapters.Check, l *launch, w adapters.Wiring) {
	args, stdin := c.Ask(l.seen(), w)
	if len(args) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), agentTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.path, args[1:]...)
	cmd.Env, cmd.WaitDelay, cmd.SysProcAttr = l.env, time.Second, &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, end := io.Pipe()
	cmd.Stdout, cmd.Stderr = end, end
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		d.note(c.Name, "", "it could not be asked: %v", err)
		return
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = cmd.Wait()
		_ = end.Close()
	}()
	go func() {
		_, _ = io.WriteString(in, stdin)
		if !c.Waits {
			_ = in.Close()
		}
	}()
	what, answered := heard(out, c.Heard)
	_ = in.Close() // what it was started for is done
	go func() { _, _ = io.Copy(io.Discard, out) }()
	patience := time.AfterFunc(checkTime, cancel)
	defer patience.Stop()
	<-over
	switch {
	case !answered:
		d.note(c.Name, "", "%s was asked and gave no answer", l.args[0])
	case what != "":
		d.bad(c.Name, c.Fix, "%s", what)
	default:
		d.ok(c.Name, "it says itself that nothing is in the way")
	}
}

// heard reads lines until one is the answer.
func heard(r io.Reader, read func(string) (string, bool)) (what string, answered bool) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if what, done := read(lines.Text()); done {
			return what, true
		}
	}
	return "", false
}

// settingNamed is a setting as a note names it: (hooksConfig.enabled).
var settingNamed = regexp.MustCompile(`\(([A-Za-z_]+(?:\.[A-Za-z_]+)*)(?: = [^)]*)?\)`)

// mend says where the setting is that a note names.
func (d *doctor) mend(note string, read map[string]string, adapter string) string {
	m := settingNamed.FindStringSubmatch(note)
	if m == nil {
		return "start it otherwise, or read aep-wrap adapters show " + adapter
	}
	words := strings.Split(m[1], ".")
	var files []string
	for path := range read {
		if strings.Contains(note, path) { // it says where itself
			return "change " + m[1] + " there, or ask whoever manages it"
		}
	}
	for path, content := range read {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(content, w) }) {
			files = append(files, tilde(path, d.app.paths.home))
		}
	}
	if files == nil {
		return "change " + m[1] + ", or read aep-wrap adapters show " + adapter
	}
	slices.Sort(files)
	return "change " + m[1] + " in " + strings.Join(files, " or ") + ", or ask whoever manages it"
}

func channelsOf(ad adapters.Adapter) (out []adapters.Channel) {
	for _, t := range ad.Vocabulary() {
		if !slices.Contains(out, t.Channel) {
			out = append(out, t.Channel)
		}
	}
	return out
}

// ---- the machine

// profile runs the shells that hooks are run by: what a profile prints, the
// agent takes for a hook's answer.
func (d *doctor) profile() {
	shells := []string{"sh", "bash"}
	if s := d.app.Getenv("SHELL"); filepath.IsAbs(s) {
		shells = append(shells, s)
	}
	quiet := true
	for _, name := range shells {
		path, err := agent.LookPath(name, d.app.Getenv("PATH"))
		if err != nil {
			continue
		}
		out, err := d.output(checkTime, path, "-c", ":")
		switch {
		case err != nil:
			quiet = false
			d.bad("shell", "see what "+name+" -c : does; BASH_ENV, ENV and ~/.zshenv are read by it", "%s -c : fails: %v", name, err)
		case out != "":
			quiet = false
			d.bad("shell", `print only for people: [ -t 1 ] && … in the file that BASH_ENV or ENV names, or in ~/.zshenv`,
				"%s prints %d bytes at its start (%q), which an agent takes for a hook's answer", name, len(out), firstOf(out))
		}
	}
	if quiet {
		d.ok("shell", "what is run by a hook prints nothing of its own")
	}
}

// clock holds this clock to when this program was made.
func (d *doctor) clock() {
	made, err := time.Parse(time.RFC3339, d.made)
	if err == nil && d.now().Before(made.Add(-24*time.Hour)) {
		d.bad("clock", "set it, by NTP for example", "it is %s, before this program was made", d.now().UTC().Format(time.DateTime))
		return
	}
	d.ok("clock", "%s", d.now().UTC().Format(time.DateTime))
}

func (d *doctor) logs() {
	dir := d.app.cfg.LogDir
	shown := tilde(dir, d.app.paths.home)
	const fix = "another place: --log-dir DIR"
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".doctor-*"); err == nil {
			_, err = f.WriteString("x\n")
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		d.bad("logs", "make "+shown+" yours to write, or "+fix, "session logs cannot be written in %s: %v", shown, reason(err))
		return
	}
	free, err := d.space(dir)
	switch {
	case err != nil:
		d.note("logs", "", "%s; how much space is free there is not known: %v", shown, reason(err))
	case free < wantSpace:
		d.bad("logs", "make room, or "+fix, "%s has %d MiB free; %d MiB are little", shown, free>>20, wantSpace>>20)
	default:
		d.ok("logs", "%s, %d MiB free", shown, free>>20)
	}
}

func freeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(float64(st.Bavail) * float64(st.Bsize)), nil // of other types on other systems
}

func (d *doctor) inotify() {
	if err := d.watch(); err != nil {
		d.bad("watching files", "raise the limits: sysctl fs.inotify.max_user_instances=512 fs.inotify.max_user_watches=65536",
			"changes of files are not announced: %v; session logs are read every 200 ms", err)
		return
	}
	what := "changes of files are announced"
	if b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			what += fmt.Sprintf(" (up to %d at once)", n)
		}
	}
	d.ok("watching files", "%s", what)
}

func canWatch() error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	return w.Add(os.TempDir())
}

// ---- the collector

func (d *doctor) token() {
	a := d.app
	c := &a.cfg
	switch from := d.given["token"]; {
	case len(from.values) > 0 && from.where == "--token":
		d.note("token", "give it by --token-file FILE", "--token has it: others on this machine can see it among the processes")
	case len(from.values) > 0:
		d.ok("token", "given by %s", from.of(0))
	case c.TokenFile != "":
		d.tokenFile(a.paths.expand(c.TokenFile))
	case c.Collector != "":
		d.note("token", "give it by --token-file FILE, if the collector asks for one", "none is given for %s: it takes no commands for this machine's agents", c.Collector)
	default:
		d.ownToken()
	}
}

// tokenFile looks at a file that was read. Its group may be one that was made for
// it.
func (d *doctor) tokenFile(path string) {
	shown := tilde(path, d.app.paths.home)
	if fi, err := os.Stat(path); err == nil && fi.Mode().Perm()&0o007 != 0 {
		d.note("token", "chmod o= "+shown, "%s has mode %04o: everybody here can read it", shown, fi.Mode().Perm())
		return
	}
	d.ok("token", "%s, given by %s", shown, d.given["token-file"].of(0))
}

// ownToken looks at the token of the per-user collector.
func (d *doctor) ownToken() {
	a := d.app
	path := a.paths.token()
	shown := tilde(path, a.paths.home)
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.ok("token", "it is made when it is needed")
		return
	case err != nil:
		d.bad("token", "make it readable for you", "%s: %v", shown, reason(err))
		return
	case fi.Mode().Perm()&0o077 != 0:
		d.bad("token", "chmod 600 "+shown+", and aep-wrap token rotate, for others may have read it", "%s has mode %04o: others can read it", shown, fi.Mode().Perm())
		return
	}
	b, err := os.ReadFile(path)
	if err == nil {
		_, err = parseToken(strings.TrimSpace(string(b)))
	}
	if err != nil {
		d.bad("token", "aep-wrap token rotate makes a new one", "%s: %v", shown, reason(err))
		return
	}
	d.ok("token", "%s", shown)
}

// collector looks whether it answers; false is that no event can be expected
// to get there.
func (d *doctor) collector() bool {
	a := d.app
	perUser := a.cfg.Collector == ""
	switch {
	case perUser && a.cfg.Listen == off:
		d.note("collector", "", "--listen is off: events go to the logs alone, and no command can come")
		return true
	case perUser:
		if err := privateDir(filepath.Dir(a.paths.collectorSocket(a.Getenv))); err != nil {
			d.bad("run directory", "make it yours: wrappers and the collector meet there", "%v", err)
			return true
		}
		if _, runs := a.runningCollector(); !runs {
			d.ok("collector", "none runs; the first agent starts it")
			return true
		}
	}
	e := a.endpoint()
	at := e.Base
	if e.Socket != "" {
		at = tilde(e.Socket, a.paths.home)
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.Base+"/.well-known/aep", nil)
	if err != nil {
		d.bad("collector", "mend --collector", "%v", err)
		return false
	}
	if e.Token != "" {
		req.Header.Set("Authorization", "Bearer "+e.Token)
	}
	resp, err := e.client().Do(req)
	if err != nil {
		d.bad("collector", "start it, or mend --collector; events wait in the logs meanwhile", "%s does not answer: %v", at, err)
		return false
	}
	defer resp.Body.Close()
	var doc struct {
		AEP json.RawMessage `json:"aep"`
	}
	switch derr := json.NewDecoder(resp.Body).Decode(&doc); {
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		d.bad("token", "give the collector's token by --token-file FILE", "%s refuses it (%s)", at, resp.Status)
		return false
	case resp.StatusCode != http.StatusOK || derr != nil:
		d.bad("collector", "is it an AEP collector? --collector wants its origin", "%s answers %s, and not what a collector does", at, resp.Status)
		return false
	case !bytes.Contains(doc.AEP, []byte(`"`+event.Version+`"`)):
		d.bad("collector", "use one that speaks AEP "+event.Version, "%s speaks AEP %s", at, doc.AEP)
		return false
	}
	d.ok("collector", "%s speaks AEP %s", at, event.Version)
	if theirs, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		if skew := d.now().Sub(theirs); skew.Abs() > maxSkew {
			d.bad("clock", "set both by NTP: commands that seem old are refused", "it is %v off the collector's", skew.Round(time.Second))
		}
	}
	return true
}

// ---- the road

// doctorAdapter is the adapter of the test event.
var doctorAdapter = adapters.Adapter{
	Name: "aep-wrap-doctor", Title: "aep-wrap doctor",
	Map: func(m adapters.Moment) []event.Draft {
		id, _ := m.Payload["session_id"].(string)
		if m.Channel != adapters.Hook || id == "" {
			return nil
		}
		return []event.Draft{{Header: event.Header{Type: "x.aep-wrap.doctor.tested", Session: id, Severity: event.Debug}, Key: id}}
	},
	Vocabulary: func() []adapters.Term {
		return []adapters.Term{{Channel: adapters.Hook, Native: "Test", Emits: "x.aep-wrap.doctor.tested"}}
	},
}

// road sends a test event the whole way.
func (d *doctor) road() {
	a := d.app
	began := time.Now()
	l := &launch{app: a, args: []string{"doctor"}, env: a.agentEnv(), start: began, adapter: doctorAdapter, name: doctorAdapter.Name}
	l.log, l.running = a.newOwnLog(), true // what it has to say is a finding here
	l.id = event.NewID(began)
	l.logDir = a.cfg.LogDir
	if _, err := os.Stat(l.logDir); err != nil {
		l.logDir = ""
	}
	l.makeDir()
	defer l.cleanUp()
	defer func() { // when nobody writes beside it any more
		if l.logDir != "" {
			sweepLog(jsonl.Path(l.logDir, l.name, l.id))
		}
	}()
	if err := l.makeSink(); err != nil {
		d.bad("road", "mend --collector", "%v", err)
		return
	}
	l.makeRoad()
	var err error
	l.hooks, err = agent.ServeHooks(agent.HookConfig{Adapter: doctorAdapter.Name, Dir: l.dir, Observer: l.road, Log: l.log})
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	defer l.closeSink()
	defer l.closeHooks(ctx)
	if err != nil {
		d.bad("run directory", "a shorter HOME, or XDG_RUNTIME_DIR set to a directory of yours", "%v", err)
		return
	}
	if l.sink != nil {
		l.sink.start()
	}
	var end adapters.Endpoint
	l.hooks.Endpoint(&end)
	d.ok("run directory", "%s", tilde(l.dir, a.paths.home))

	words := append(helper(doctorAdapter.Name), "Test")
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(slices.DeleteFunc(a.agentEnv(), func(kv string) bool { return strings.HasPrefix(kv, hookclient.SocketEnv+"=") }), hookclient.SocketEnv+"="+end.Socket)
	cmd.Stdin = strings.NewReader(`{"session_id":"` + l.id + `"}`)
	asked := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(asked)
	switch {
	case err != nil:
		d.bad("hook helper", "install aep-hook beside aep-wrap", "%s: %v", words[0], err)
		return
	case len(out) > 0:
		d.bad("hook helper", "install the aep-hook of this version beside aep-wrap", "%s prints %q, which an agent takes for an answer", words[0], firstOf(string(out)))
		return
	}
	d.ok("hook helper", "%s, %d ms", tilde(words[0], a.paths.home), took.Milliseconds())
	l.closeHooks(ctx)
	l.road.Exit(ctx, exitOf(agent.Exit{}))
	flushed := l.road.Flush(ctx)
	if l.road.Stats().Events == 0 {
		d.bad("road", "see "+tilde(a.paths.ownLog(), a.paths.home), "the helper was run, and its event did not arrive at its socket")
		return
	}
	log := jsonl.Path(l.logDir, l.name, l.id)
	if l.logDir != "" {
		raw, err := os.ReadFile(log)
		if err != nil || !bytes.Contains(raw, []byte("x.aep-wrap.doctor.tested")) {
			d.bad("road", "see "+tilde(a.paths.ownLog(), a.paths.home), "the test event is not in its session log %s", tilde(log, a.paths.home))
			return
		}
	}
	if l.sink == nil {
		d.ok("road", "a test event came from the helper to the log in %d ms", time.Since(began).Milliseconds())
		return
	}
	if flushed != nil {
		d.bad("road", "events wait in the logs and are sent later: aep-wrap flush", "a test event did not reach the collector: %s", l.sink.word())
		return
	}
	held, err := a.held(ctx, string(event.AppendValue(nil, map[string]any{"session": l.id})))
	there := false
	if err == nil {
		for key := range held.sessions {
			there = there || key[1] == l.id
		}
	}
	if !there {
		fix := "a token that allows to watch shows it: aep-wrap token show"
		d.note("road", fix, "the collector took a test event and does not show it: %v", err)
		return
	}
	d.ok("road", "a test event came from the helper to the log and the collector in %d ms", time.Since(began).Milliseconds())
}

// sweepLog removes the test's session log and what lies beside it.
func sweepLog(log string) {
	files, _ := filepath.Glob(strings.TrimSuffix(log, ".jsonl") + "*")
	for _, f := range files {
		_ = os.Remove(f)
	}
	_ = os.Remove(filepath.Dir(log)) // when nothing else is in it
}
