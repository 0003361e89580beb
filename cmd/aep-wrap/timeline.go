package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/collector/client"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

func newTimelineCmd(a *app) *cobra.Command {
	var tree bool
	var room func() int
	cmd := &cobra.Command{
		Use:   "timeline SESSION",
		Short: "Show what happened in one session",
		Long: `Reads a session from its log, or, where this machine has none, from the
collector, and shows it in order: when, what, on what, how it went, how long it
took. SESSION is the session's name or the beginning of it, or a log's path. On a
terminal a line is as long as that is wide; elsewhere, and with --wide, nothing is
left out.`,
		Example: `  aep-wrap timeline 01JX9YB
  aep-wrap timeline 01JX9YB --tree       what led to what
  aep-wrap timeline ./run.jsonl
  aep-wrap timeline 01JX9YB --json | jq 'select(.severity=="error")'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError("timeline: want one SESSION; aep-wrap tail --from all shows their names")
			}
			return nil
		},
		ValidArgsFunction: a.completeLog,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.findStory(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.showStory(s, tree, room())
		},
	}
	room = a.roomFlag(cmd)
	cmd.Flags().BoolVar(&tree, "tree", false, "indent each event under the one that caused it")
	return cmd
}

// showTimeline shows the log at path.
func (a *app) showTimeline(path string) error {
	s, err := a.readStory(path)
	if err != nil {
		return err
	}
	return a.showStory(s, false, terminalWidth(a.Stdout))
}

// findStory finds a session by a path, its name, or the beginning of it: in
// the logs, else at the collector.
func (a *app) findStory(ctx context.Context, name string) (*story, error) {
	if strings.ContainsRune(name, filepath.Separator) || strings.HasSuffix(name, ".jsonl") {
		if _, err := os.Stat(name); err == nil {
			return a.readStory(name)
		}
	}
	path, err := a.findLog(name)
	if err == nil {
		return a.readStory(path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s, cerr := a.fetchStory(ctx, name)
	var slow net.Error
	switch {
	case cerr == nil:
		return s, nil
	case errors.Is(cerr, fs.ErrNotExist), a.cfg.Collector == "" && (!errors.As(cerr, &slow) || !slow.Timeout()):
		return nil, fmt.Errorf("no session %q in %s, and none at the collector", name, tilde(a.cfg.LogDir, a.paths.home))
	}
	return nil, fmt.Errorf("no session %q in %s, and the collector cannot be asked: %w", name, tilde(a.cfg.LogDir, a.paths.home), cerr)
}

// logNames are the logs by the name of their session, as files spell it.
func (a *app) logNames() (map[string][]string, error) {
	agents, err := os.ReadDir(a.cfg.LogDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := map[string][]string{}
	for _, agent := range agents {
		if !agent.IsDir() {
			continue
		}
		dir := filepath.Join(a.cfg.LogDir, agent.Name())
		logs, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, l := range logs {
			if name, ok := strings.CutSuffix(l.Name(), ".jsonl"); ok && l.Type().IsRegular() {
				names[name] = append(names[name], filepath.Join(dir, l.Name()))
			}
		}
	}
	return names, nil
}

func (a *app) sessionNames() []string {
	if a.cfg.LogDir == "" {
		return nil
	}
	names, err := a.logNames()
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(names))
	for n := range names {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// findLog finds the one log whose session's name is, or begins with, name.
func (a *app) findLog(name string) (string, error) {
	names, err := a.logNames()
	if err != nil {
		return "", err
	}
	found := names[jsonl.SafeName(name)]
	if len(found) == 0 && name != "" {
		whole, err := control.Resolve(name, slices.Collect(maps.Keys(names)))
		if many := (*control.AmbiguousError)(nil); errors.As(err, &many) {
			for _, n := range many.Found {
				found = append(found, names[n]...)
			}
		} else if err == nil {
			found = names[whole]
		}
	}
	switch len(found) {
	case 0:
		return "", fs.ErrNotExist
	case 1:
		return found[0], nil
	}
	slices.Sort(found)
	var list []string
	for _, p := range found[:min(len(found), 8)] {
		rel, err := filepath.Rel(a.cfg.LogDir, p)
		if err != nil {
			rel = p
		}
		list = append(list, strings.TrimSuffix(rel, ".jsonl"))
	}
	if len(found) > len(list) {
		list = append(list, fmt.Sprintf("and %d more", len(found)-len(list)))
	}
	return "", usageError("%q is the beginning of several sessions: %s; write more of it, or the log's path", name, strings.Join(list, ", "))
}

// fetchWait is how long the collector has to give what it holds.
const fetchWait = 30 * time.Second

// fetchStory asks the collector for a session.
func (a *app) fetchStory(ctx context.Context, name string) (*story, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	e := a.endpoint()
	byName := map[string]*story{}
	cfg := client.Config{Base: e.Base, Token: e.Token, HTTP: e.client(), All: true, Once: true}
	err := client.Follow(ctx, cfg, func(e client.Event) error {
		if len(e.Session) < len(name) || !strings.EqualFold(e.Session[:len(name)], name) {
			return nil
		}
		s := byName[e.Session]
		if s == nil {
			s = newStory(a.cfg.JSON)
			byName[e.Session] = s
		}
		s.add(e.Line)
		return nil
	})
	if err != nil {
		return nil, err
	}
	whole, err := control.Resolve(name, slices.Collect(maps.Keys(byName)))
	if many := (*control.AmbiguousError)(nil); errors.As(err, &many) {
		return nil, a.ambiguous("session", name, many.Found, func(string) string { return "" })
	}
	if err != nil {
		return nil, fs.ErrNotExist
	}
	return byName[whole].sort(), nil
}

// story is a session's events in order.
type story struct {
	keep    bool // the lines themselves
	scenes  []scene
	seen    map[[2]string]bool
	skipped int // lines that are no event of ours
}

// scene is one event, as far as it is shown.
type scene struct {
	event.Header
	told
	call   string // the tool's call, the subagent's session: what pairs a beginning with its end
	line   []byte
	anchor event.Position // of an event without one: that of the event it came behind
}

func newStory(keep bool) *story { return &story{keep: keep, seen: map[[2]string]bool{}} }

func (a *app) readStory(path string) (*story, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := newStory(a.cfg.JSON)
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			s.add(line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if s.skipped > 0 && !a.cfg.Quiet {
		a.warn("%s: passed over %s; aep-wrap validate says why", path, count(s.skipped, "line"))
	}
	if len(s.scenes) == 0 {
		return nil, fmt.Errorf("%s holds no event", path)
	}
	return s.sort(), nil
}

func (s *story) add(line []byte) {
	e, err := event.Parse(line)
	if err != nil {
		s.skipped++
		return
	}
	id := [2]string{e.Source, e.ID}
	if s.seen[id] {
		return
	}
	s.seen[id] = true
	sc := scene{Header: e.Header, told: tell(&e), call: callOf(&e), anchor: e.Position()}
	sc.subject, sc.state = clip(sc.subject, 400), clip(sc.state, 400)
	if s.keep {
		sc.line = bytes.Clone(line)
	}
	if !sc.Sequenced {
		sc.anchor = event.Position{Seq: -1}
		if n := len(s.scenes); n > 0 {
			sc.anchor = s.scenes[n-1].anchor
		}
	}
	s.scenes = append(s.scenes, sc)
}

// callOf is what a tool's events, or a subagent's, have in common.
func callOf(e *event.Event) string {
	tree, err := event.ParseObject(e.Data)
	if err != nil {
		return ""
	}
	for _, p := range [][2]string{{"tool", "call_id"}, {"child", "session"}} {
		if o, ok := tree[p[0]].(map[string]any); ok {
			if v, ok := o[p[1]].(string); ok {
				return v
			}
		}
	}
	return ""
}

// sort puts the events in the order of their positions, and measures what the
// sender did not.
func (s *story) sort() *story {
	slices.SortStableFunc(s.scenes, func(a, b scene) int {
		return cmp.Or(cmp.Compare(a.anchor.Epoch, b.anchor.Epoch), cmp.Compare(a.anchor.Seq, b.anchor.Seq))
	})
	began := map[string]time.Time{}
	for i := range s.scenes {
		sc := &s.scenes[i]
		begins, ends := sc.pair()
		if begins != "" {
			began[begins] = sc.Time
		}
		if t, ok := began[ends]; ok && ends != "" && sc.took == 0 && sc.Time.After(t) {
			sc.took = sc.Time.Sub(t)
		}
	}
	return s
}

// pair names what an event begins, and what it ends.
func (sc *scene) pair() (begins, ends string) {
	switch sc.Type {
	case "session.started":
		return "session", ""
	case "session.ended":
		return "", "session"
	case "run.started":
		return "run " + sc.Run, ""
	case "run.finished", "run.failed", "run.cancelled":
		return "", "run " + sc.Run
	case "run.step.started":
		return "step " + sc.Run + " " + sc.Step, ""
	case "run.step.finished":
		return "", "step " + sc.Run + " " + sc.Step
	case "attention.requested":
		return "attention " + sc.ID, ""
	case "attention.resolved", "attention.timeout":
		return "", "attention " + sc.Subject
	}
	if sc.call == "" {
		return "", ""
	}
	switch sc.Type {
	case "tool.requested":
		return "tool " + sc.call, ""
	case "tool.completed", "tool.failed", "tool.denied":
		return "", "tool " + sc.call
	case "delegation.subagent.started":
		return "child " + sc.call, ""
	case "delegation.subagent.stopped":
		return "", "child " + sc.call
	}
	return "", ""
}

func (a *app) showStory(s *story, tree bool, room int) error {
	w := bufio.NewWriterSize(a.Stdout, 64<<10)
	if a.cfg.JSON {
		for _, sc := range s.scenes {
			fmt.Fprintf(w, "%s\n", sc.line)
		}
		return w.Flush()
	}
	d := drawing{w: w, look: a.lookOf(a.Stdout), s: s, room: room}
	d.draw(tree)
	return w.Flush()
}

// drawing draws a story as a table.
type drawing struct {
	w      io.Writer
	look   look
	s      *story
	room   int // cells of a line; 0 is as many as it takes
	start  time.Time
	widths []int // of the columns
}

// The columns. The last is as wide as what stands in it.
const (
	colOffset = iota
	colType
	colSubject
	colTook
	colState
)

var heads = [...]string{colOffset: "OFFSET", colType: "TYPE", colSubject: "SUBJECT", colTook: "TOOK", colState: "STATE"}

// The widest that columns become for what stands in them. More of it is not cut
// off for that, where there is room.
const (
	maxType    = 44
	maxSubject = 32
	maxBranch  = 16 // levels of a tree that are drawn
)

// giving are the columns that give room to others, in their turns.
var giving = []floor{{colState, 16}, {colSubject, 12}, {colType, 20}, {colSubject, 8}, {colType, 8}, {colState, 0}, {colSubject, 0}}

func (d *drawing) draw(tree bool) {
	scenes := d.s.scenes
	d.start = scenes[0].Time
	end := d.start
	session, agent := "", ""
	for _, sc := range scenes {
		if sc.Time.Before(d.start) {
			d.start = sc.Time
		}
		if sc.Time.After(end) {
			end = sc.Time
		}
		if session == "" && sc.Sequenced {
			session, agent = sc.Session, sc.Agent
		}
	}
	first := scenes[0]
	who := visible(cmp.Or(agent, first.Agent)) + " · " + visible(cmp.Or(session, first.Session))
	when := fmt.Sprintf("%s · %s · %s", d.start.Local().Format("2006-01-02 15:04:05"), span(end.Sub(d.start)), count(len(scenes), "event"))
	between := "  "
	if d.room > 0 && cells(who+between+when) > d.room { // the name stays whole
		between = "\n"
	}
	fmt.Fprintf(d.w, "%s%s%s\n", d.look.paint(bold, who), between, d.look.paint(dim, when))

	var order []int
	var branch []string
	if tree {
		order, branch = d.s.tree()
	} else {
		order, branch = make([]int, len(scenes)), make([]string, len(scenes))
		for i := range order {
			order[i] = i
		}
	}
	d.measure(order, branch, tree)
	fmt.Fprintf(d.w, "\n%s\n", d.look.paint(dim, d.cut(fmt.Sprintf("%*s  %s  %s  %*s  %s", d.widths[colOffset], heads[colOffset],
		pad(heads[colType], d.widths[colType]), pad(heads[colSubject], d.widths[colSubject]), d.widths[colTook], heads[colTook], heads[colState]))))
	run := ""
	for n, i := range order {
		sc := &scenes[i]
		indent := branch[n]
		if !tree {
			if sc.Run != "" {
				if sc.Run != run { // what is of no run between two events of one does not end it
					fmt.Fprintf(d.w, "%*s  %s\n", d.widths[colOffset], "", d.look.paint(dim, "run "+visible(sc.Run)))
				}
				run, indent = sc.Run, "  "
			}
		}
		d.row(sc, indent)
	}
}

// measure makes the columns as wide as what stands in them, and then as narrow as
// the terminal wants them.
func (d *drawing) measure(order []int, branch []string, tree bool) {
	d.widths = make([]int, len(heads))
	for column, head := range heads {
		d.widths[column] = len(head)
	}
	for n, i := range order {
		sc := &d.s.scenes[i]
		indent := cells(branch[n])
		if !tree && sc.Run != "" {
			indent = 2
		}
		for column, need := range []int{len(offset(sc.Time.Sub(d.start))), min(cells(sc.Type)+indent, maxType), min(cells(visible(sc.subject)), maxSubject), len(sc.span()), cells(visible(sc.state))} {
			d.widths[column] = max(d.widths[column], need)
		}
	}
	if d.room == 0 {
		d.widths[colOffset], d.widths[colTook] = 10, 7
	} else {
		narrow(d.widths, d.room-2*(len(d.widths)-1), giving...)
	}
}

// cut ends a line where the terminal does.
func (d *drawing) cut(line string) string {
	if d.room == 0 {
		return line
	}
	return fit(line, d.room)
}

// span is how long it took.
func (sc *scene) span() string {
	if sc.took > 0 {
		return span(sc.took)
	}
	return ""
}

func (d *drawing) row(sc *scene, indent string) {
	typ, subject, state := sc.Type, visible(sc.subject), visible(sc.state)
	if d.room > 0 {
		indent = fit(indent, d.widths[colType]-8)
		typ = fit(typ, d.widths[colType]-cells(indent))
		subject = fit(subject, d.widths[colSubject])
		state = fit(state, d.widths[colState])
	}
	line := fmt.Sprintf("%s  %s%s  %s  %s  %s", d.look.paint(dim, fmt.Sprintf("%*s", d.widths[colOffset], offset(sc.Time.Sub(d.start)))),
		d.look.paint(dim, indent), d.look.paint(colourOf(&sc.Header), pad(typ, d.widths[colType]-cells(indent))),
		pad(subject, d.widths[colSubject]), d.look.paint(dim, fmt.Sprintf("%*s", d.widths[colTook], sc.span())), state)
	fmt.Fprintln(d.w, strings.TrimRight(line, " "))
}

// offset writes a time since the beginning, to the millisecond.
func offset(t time.Duration) string {
	t = t.Round(time.Millisecond)
	s := t.Seconds() - float64(int(t.Minutes())*60)
	switch {
	case t < time.Minute:
		return fmt.Sprintf("%.3f", s)
	case t < time.Hour:
		return fmt.Sprintf("%d:%06.3f", int(t.Minutes()), s)
	}
	return fmt.Sprintf("%d:%02d:%06.3f", int(t.Hours()), int(t.Minutes())%60, s)
}

// tree orders the events so that each stands under the one that caused it, and
// gives the branches before it. A cause that is not here makes a root; a ring
// of causes is cut at its first event.
func (s *story) tree() (order []int, branch []string) {
	byID := map[string]int{}
	for i, sc := range s.scenes {
		if _, taken := byID[sc.ID]; !taken {
			byID[sc.ID] = i
		}
	}
	children := make([][]int, len(s.scenes))
	var roots []int
	rings := s.rings(byID)
	for i := range s.scenes {
		if cause, ok := s.cause(byID, i); ok && !rings[i] {
			children[cause] = append(children[cause], i)
		} else {
			roots = append(roots, i)
		}
	}
	type step struct {
		i     int
		under string // the branches of its parent
		last  bool
		depth int
	}
	var todo []step
	for _, r := range slices.Backward(roots) {
		todo = append(todo, step{i: r})
	}
	for len(todo) > 0 {
		st := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		own, below := "", ""
		if st.depth > 0 {
			own, below = st.under+"├ ", st.under+"│ "
			if st.last {
				own, below = st.under+"└ ", st.under+"  "
			}
		}
		if st.depth >= maxBranch {
			own, below = st.under, st.under
		}
		order = append(order, st.i)
		branch = append(branch, own)
		for k, c := range slices.Backward(children[st.i]) {
			todo = append(todo, step{c, below, k == len(children[st.i])-1, st.depth + 1})
		}
	}
	return order, branch
}

// rings marks the first event of each ring of causes, which a sender's mistake
// makes.
func (s *story) rings(byID map[string]int) map[int]bool {
	const walking, done = 1, 2
	first := map[int]bool{}
	state := make([]uint8, len(s.scenes))
	for i := range s.scenes {
		var walk []int
		for j, ok := i, true; ok && state[j] != done; j, ok = s.cause(byID, j) {
			if state[j] == walking {
				ring := walk[slices.Index(walk, j):]
				first[slices.Min(ring)] = true
				break
			}
			state[j] = walking
			walk = append(walk, j)
		}
		for _, j := range walk {
			state[j] = done
		}
	}
	return first
}

// cause is the event that caused event i, if it is here.
func (s *story) cause(byID map[string]int, i int) (int, bool) {
	if s.scenes[i].Cause == "" {
		return 0, false
	}
	c, ok := byID[s.scenes[i].Cause]
	return c, ok
}
