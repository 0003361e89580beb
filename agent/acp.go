package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// The bounds of what an ACP remembers and holds.
const (
	acpFrames   = 4096        // messages that wait to be read
	acpBytes    = 64 << 20    // and their bytes
	acpCalls    = 1 << 12     // requests whose response is awaited
	acpEarly    = 64          // messages before the first session
	acpHeld     = maxLine     // bytes of an editor's message that is held until it is known what it is
	acpPatience = time.Second // for what was passed on to be read, at the end
)

const (
	acpPermission = "session/request_permission"
	acpWithdraw   = "$/cancel_request"
)

// ACP stands between an editor and the agent that it has started, on the
// agent's standard input and output, and passes every byte on as it comes.
// What the messages say is read from copies, on a goroutine of its own: one
// that cannot be read is told as refused, and one for which there is no room is
// left out.
//
// With Answer it takes part: a permission that the agent asks the editor for
// can be answered from afar, and a prompt turn be cancelled. What it says
// itself goes between two messages, never into one. The first answer to a
// request is the agent's, whoever gave it, and the agent hears no other.
type ACP struct {
	Road    *Road
	Reply   func(adapters.Moment, adapters.Answer) []byte
	Session string // of the launch: runs are named after it
	Answer  bool
	Log     *slog.Logger

	toAgent, toEditor acpWay
	wake              *waker
	over              chan struct{} // all of the agent's output was passed on
	inOver            chan struct{} // all of its input was
	ctx               context.Context
	cancel            context.CancelFunc

	gate acpGate

	mu     sync.Mutex
	queue  []acpFrame
	bytes  int
	lost   int
	news   chan struct{}
	ended  bool
	parsed chan struct{}
	eof    atomic.Bool // of the agent's output

	// The reading goroutine's own.
	calls map[string]acpCall
	order []string // of calls
	last  string   // the session that was spoken of last
	seen  map[string]bool
	args  map[string]string // by session and call, of the tools that were told: the digest of the input, where there was one
	opens int               // requests that open a session and wait for their response
	early []adapters.Moment
}

// acpFrame is a message on its way to be read.
type acpFrame struct {
	agent bool // it came from the agent
	line  []byte
}

// acpCall is a request whose response is awaited.
type acpCall struct {
	method    string
	params    any
	session   string
	run, name string
	early     *adapters.Moment // it named no session: that of its response is its own
}

// acpWay is one direction. Who writes holds mu; between two messages nothing
// is underway.
type acpWay struct {
	from, to int
	file     *os.File // the editor's of the two: one that is collected closes its descriptor
	mu       sync.Mutex
	between  *sync.Cond
	underway bool
	closed   bool
	cut      cutter
}

// acpGate decides who answers a permission. The order of locks: acpWay.mu,
// then mu.
type acpGate struct {
	mu       sync.Mutex
	pending  map[string]string // ids of the agent's requests that wait: their session
	answered map[string]bool   // those answered from afar, to which the editor's answer is yet to come
}

// Pipe makes the pipes that the agent is started on, and puts them into its
// spec.
func (a *ACP) Pipe(s *Spec) error {
	if a.Log == nil {
		a.Log = slog.New(slog.DiscardHandler)
	}
	if _, err := null(); err != nil {
		return err
	}
	agentIn, editorOut, err := pipe()
	if err != nil {
		return err
	}
	editorIn, agentOut, err := pipe()
	if err != nil {
		unix.Close(agentIn)
		unix.Close(editorOut)
		return err
	}
	if a.wake, err = newWaker(); err != nil {
		for _, fd := range []int{agentIn, editorOut, editorIn, agentOut} {
			unix.Close(fd)
		}
		return err
	}
	a.toAgent = acpWay{from: fdOf(s.Stdin), to: editorOut, file: s.Stdin}
	a.toEditor = acpWay{from: editorIn, to: fdOf(s.Stdout), file: s.Stdout}
	for _, w := range []*acpWay{&a.toAgent, &a.toEditor} {
		w.between = sync.NewCond(&w.mu)
	}
	s.Stdin, s.Stdout = os.NewFile(uintptr(agentIn), "agent's input"), os.NewFile(uintptr(agentOut), "agent's output")
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.inOver = make(chan struct{})
	a.over, a.news, a.parsed = make(chan struct{}), make(chan struct{}, 1), make(chan struct{})
	a.calls, a.seen = map[string]acpCall{}, map[string]bool{}
	a.args = map[string]string{}
	a.gate = acpGate{pending: map[string]string{}, answered: map[string]bool{}}
	a.cutter(&a.toAgent, false)
	a.cutter(&a.toEditor, true)
	return nil
}

func (a *ACP) cutter(w *acpWay, agent bool) {
	w.cut.tell = func(line []byte) {
		switch {
		case a.Answer && agent:
			a.gate.asked(line)
		case a.Answer:
			a.gate.heard(line)
		}
		a.put(acpFrame{agent, bytes.Clone(line)})
	}
	w.cut.skip = func(n int) {
		if !agent {
			a.gate.giveUp() // it may have been an answer
		}
		a.leaveOut(n)
	}
}

// Run passes on what comes. The agent is started: its ends of the pipes are
// its own now.
func (a *ACP) Run(s *Spec) {
	s.Stdin.Close()
	s.Stdout.Close()
	go a.read()
	go a.fromEditor()
	go a.fromAgent()
}

// Abandon is Run for an agent that was not started.
func (a *ACP) Abandon(s *Spec) {
	s.Stdin.Close()
	s.Stdout.Close()
	unix.Close(a.toAgent.to)
	unix.Close(a.toEditor.from)
	a.wake.close()
	a.cancel()
}

// Finish is called when the agent has ended: what it wrote is passed on, and
// read. Where some process that it left behind holds the pipe, a copy of this
// program goes on passing it on.
func (a *ACP) Finish() {
	a.wake.wake()
	<-a.over
	if !a.eof.Load() {
		if err := leaveCopier(a.toEditor.from, a.toEditor.to); err != nil {
			a.Log.Warn("a process that the agent left behind loses its output", "err", err)
		}
		unix.Close(a.toEditor.from)
	}
	a.wake.close()
	a.toEditor.cut.end()
	a.cancel() // nobody waits for an answer any more
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	wake(a.news)
	select {
	case <-a.parsed:
	case <-time.After(acpPatience):
		a.Log.Warn("not all messages could be read in time")
	}
}

// fromEditor passes the editor's bytes on until their end, which is the end of
// the agent's input, or until the agent reads no more, which the editor then
// meets as without us.
func (a *ACP) fromEditor() {
	w := &a.toAgent
	defer func() {
		w.mu.Lock()
		w.closed = true
		unix.Close(w.to)
		w.between.Broadcast()
		w.mu.Unlock()
		close(a.inOver)
	}()
	buf := make([]byte, 64<<10)
	var held []byte
	for {
		data, out := waitFD{fd: w.from, read: true}, waitFD{fd: w.to}
		if waitFDs(-1, &data, &out) != nil || out.bad {
			vacate(w.from)
			return
		}
		if !data.ready && !data.bad {
			continue
		}
		n, err := unix.Read(w.from, buf)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if n <= 0 {
			if held == nil || !a.gate.swallow(held) {
				w.cut.take(held)
				_ = w.write(held)
			}
			w.cut.end()
			return
		}
		if !a.Answer {
			w.cut.take(buf[:n])
			if w.write(buf[:n]) != nil {
				vacate(w.from)
				return
			}
			continue
		}
		if held, err = a.screen(buf[:n], held); err != nil {
			vacate(w.from)
			return
		}
	}
}

// screen passes the editor's bytes on, but for its answers to what was
// answered already. While none of those is awaited nothing is held back; else a
// message is held until its end shows what it is. It gives what is held.
func (a *ACP) screen(b, held []byte) ([]byte, error) {
	w := &a.toAgent
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(b) > 0 {
		piece, whole := b, false
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			piece, whole = b[:i+1], true
		}
		b = b[len(piece):]
		switch {
		case held != nil || !w.underway && a.gate.awaits():
			held = append(held, piece...)
			if !whole && len(held) <= acpHeld {
				continue
			}
			if whole && a.gate.swallow(held) {
				held = nil
				continue
			}
			piece, held = held, nil
		}
		w.cut.take(piece)
		if err := w.pass(piece, whole); err != nil {
			return nil, err
		}
	}
	return held, nil
}

// fromAgent passes the agent's bytes on until their end, or until it was woken
// and the pipe is empty. When the editor reads no more, the agent meets that.
func (a *ACP) fromAgent() {
	defer close(a.over)
	w := &a.toEditor
	end := func() {
		a.eof.Store(true)
		unix.Close(w.from)
		vacate(w.to)
	}
	buf := make([]byte, 64<<10)
	for leaving := false; ; {
		data, wake, out := waitFD{fd: w.from, read: true}, waitFD{fd: a.wake.r, read: true}, waitFD{fd: w.to}
		timeout := time.Duration(-1)
		if leaving {
			timeout, wake.fd = 0, -1
		}
		if waitFDs(timeout, &data, &out, &wake) != nil || out.bad {
			end()
			return
		}
		switch {
		case data.ready || data.bad:
			n, err := unix.Read(w.from, buf)
			if err == unix.EINTR || err == unix.EAGAIN {
				continue
			}
			if n <= 0 {
				end()
				return
			}
			w.cut.take(buf[:n]) // first: what is asked must be known before its answer can come
			if w.write(buf[:n]) != nil {
				end()
				return
			}
		case wake.ready:
			leaving = true
		case leaving:
			return
		}
	}
}

// null is what takes the place of what is closed. It is opened before it is
// needed: there may be no descriptor left then.
var null = sync.OnceValues(func() (*os.File, error) { return os.OpenFile(os.DevNull, os.O_RDWR, 0) })

// vacate closes a standard descriptor of ours, as its other end is to notice,
// without setting its number free: others write to it, and another's is what is
// opened next.
func vacate(fd int) {
	if f, err := null(); err == nil {
		_ = dup2(fdOf(f), fd)
	}
}

func (w *acpWay) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pass(b, b[len(b)-1] == '\n')
}

// pass writes bytes that end a message, or do not. Under mu.
func (w *acpWay) pass(b []byte, whole bool) error {
	w.underway = !whole
	err := writeAll(w.to, b)
	if whole {
		w.between.Broadcast()
	}
	return err
}

var errACPClosed = errors.New("the connection to the agent is closed")

// say writes a message of our own between two others. Sure, where it is set,
// is asked when its turn has come.
func (w *acpWay) say(line []byte, sure func() bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.underway && !w.closed {
		w.between.Wait()
	}
	switch {
	case w.closed:
		return errACPClosed
	case sure != nil && !sure():
		return errACPLate
	}
	return writeAll(w.to, append(line, '\n'))
}

var errACPLate = errors.New("the editor was first")

// ---- who answers

// envelope is as much of a message as tells what it is.
type acpEnvelope struct {
	ID     json.RawMessage `json:"id"`
	Method *string         `json:"method"`
	Params struct {
		SessionID string `json:"sessionId"`
	} `json:"params"`
}

// acpID is the id of a message in one spelling; "" is none.
func acpID(raw json.RawMessage) string {
	v, err := event.ParseJSON(raw)
	if err != nil || v == nil {
		return ""
	}
	return string(event.AppendValue(nil, v))
}

// asked takes note of a message of the agent's that asks for a permission.
func (g *acpGate) asked(line []byte) {
	if !bytes.Contains(line, []byte("request_permission")) {
		return
	}
	var m acpEnvelope
	if json.Unmarshal(line, &m) != nil || m.Method == nil || *m.Method != acpPermission {
		return
	}
	if id := acpID(m.ID); id != "" {
		g.mu.Lock()
		if len(g.pending) < acpCalls {
			g.pending[id] = m.Params.SessionID
		}
		delete(g.answered, id)
		g.mu.Unlock()
	}
}

// awaits says whether an answer of the editor's is to be kept from the agent.
func (g *acpGate) awaits() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.answered) > 0
}

// swallow says whether a message of the editor's answers what was answered
// already.
func (g *acpGate) swallow(line []byte) bool {
	id := responseTo(line)
	g.mu.Lock()
	defer g.mu.Unlock()
	if id == "" || !g.answered[id] {
		return false
	}
	delete(g.answered, id)
	return true
}

// heard takes note of a message of the editor's that the agent has heard.
func (g *acpGate) heard(line []byte) {
	g.mu.Lock()
	any := len(g.pending) > 0
	g.mu.Unlock()
	if !any {
		return
	}
	if id := responseTo(line); id != "" {
		g.mu.Lock()
		delete(g.pending, id)
		g.mu.Unlock()
	}
}

// giveUp leaves all that waits to the editor.
func (g *acpGate) giveUp() {
	g.mu.Lock()
	clear(g.pending)
	g.mu.Unlock()
}

// claim takes a request for an answer from afar, if nobody has answered it.
func (g *acpGate) claim(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.pending[id]; !ok {
		return false
	}
	delete(g.pending, id)
	g.answered[id] = true
	return true
}

// of lists the requests of a session that wait.
func (g *acpGate) of(session string) (ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, s := range g.pending {
		if s == session {
			ids = append(ids, id)
		}
	}
	return ids
}

// responseTo is the id that a message answers, "" where it is no response.
func responseTo(line []byte) string {
	var m acpEnvelope
	if json.Unmarshal(line, &m) != nil || m.Method != nil {
		return ""
	}
	return acpID(m.ID)
}

// settle gives the agent the result of its request, if nobody has answered it,
// and tells the editor that it is settled.
func (a *ACP) settle(id string, result []byte) error {
	line := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	line = append(append(append(line, `,"result":`...), result...), '}')
	if err := a.toAgent.say(line, func() bool { return a.gate.claim(id) }); err != nil {
		return err
	}
	note := append([]byte(`{"jsonrpc":"2.0","method":"`+acpWithdraw+`","params":{"requestId":`), id...)
	go func() { // the agent may be in the middle of a message for long
		if err := a.toEditor.say(append(note, '}', '}'), nil); err != nil {
			a.Log.Debug("the editor was not told that a request is settled", "err", err)
		}
	}()
	return nil
}

// await waits for an answer from afar.
func (a *ACP) await(m adapters.Moment, id string, size int) {
	hold := a.Road.Ask(m, size, func(x adapters.Answer) []byte { return a.Reply(m, x) })
	if hold == nil {
		return
	}
	go func() {
		result := hold.Wait(a.ctx)
		if _, ok := hold.Answer(); !ok {
			return
		}
		if err := a.settle(id, result); err != nil {
			a.Log.Info("an answer from afar was not applied", "err", err)
			hold.Undelivered()
			return
		}
		hold.Applied()
	}()
}

// Request says a notification of the adapter's to the agent: session/cancel.
// As an editor does who cancels, it answers what the session's agent waits for.
func (a *ACP) Request(_ context.Context, r adapters.Request) error {
	if !a.Answer {
		return errors.New("nothing is said to the agent without --answer")
	}
	line := append([]byte(`{"jsonrpc":"2.0","method":`), event.AppendValue(nil, r.Method)...)
	line = append(append(append(line, `,"params":`...), r.Body...), '}')
	if err := a.toAgent.say(line, nil); err != nil {
		return err
	}
	var params struct {
		SessionID string `json:"sessionId"`
	}
	_ = json.Unmarshal(r.Body, &params) // of our own making
	for _, id := range a.gate.of(params.SessionID) {
		result := []byte(`{"outcome":{"outcome":"cancelled"}}`)
		if a.settle(id, result) == nil {
			a.put(acpFrame{false, append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), `,"result":{"outcome":{"outcome":"cancelled"}}}`...)})
		}
	}
	return nil
}

// ---- reading

// put hands a message to the reading goroutine, and never waits.
func (a *ACP) put(f acpFrame) {
	a.mu.Lock()
	room := !a.ended && len(a.queue) < acpFrames && a.bytes+len(f.line) <= acpBytes
	if room {
		a.queue = append(a.queue, f)
		a.bytes += len(f.line)
	} else {
		a.lost++
	}
	a.mu.Unlock()
	wake(a.news)
}

// leaveOut counts a message that is too long to be read.
func (a *ACP) leaveOut(n int) {
	a.Road.Refuse(Refusal{Channel: adapters.Stream, Reason: "too_large", Bytes: n})
}

func (a *ACP) read() {
	defer close(a.parsed)
	for {
		a.mu.Lock()
		queue, lost, ended := a.queue, a.lost, a.ended
		a.queue, a.bytes, a.lost = nil, 0, 0
		a.mu.Unlock()
		for range lost {
			a.Road.Refuse(Refusal{Channel: adapters.Stream, Reason: "busy"})
		}
		for _, f := range queue {
			a.take(f)
		}
		if len(queue) > 0 {
			continue
		}
		if ended {
			return
		}
		<-a.news
	}
}

// take makes a message a moment.
func (a *ACP) take(f acpFrame) {
	payload, err := event.ParseObject(f.line)
	if err != nil {
		a.Road.Refuse(Refusal{Channel: adapters.Stream, Reason: refusalReason(err), Bytes: len(f.line)})
		return
	}
	method, _ := payload["method"].(string)
	id := ""
	if payload["id"] != nil {
		id = string(event.AppendValue(nil, payload["id"]))
	}
	m := map[string]any{}
	for _, member := range []string{"params", "result", "error"} {
		if v, ok := payload[member]; ok {
			m[member] = v
		}
	}
	moment := adapters.Moment{Channel: adapters.Stream, Name: method, Payload: m, Time: a.Road.cfg.Now(), Session: sessionIn(m["params"])}
	switch {
	case method != "" && id != "":
		m["kind"], m["method"] = "request", method
		a.request(f, id, moment)
	case method != "":
		m["kind"], m["method"] = "notification", method
		a.input(moment)
		a.observe(moment, len(f.line))
	case id != "" && (m["result"] != nil || m["error"] != nil):
		m["kind"] = "response"
		a.response(f, id, moment)
	default:
		a.Road.Refuse(Refusal{Channel: adapters.Stream, Reason: "not_rpc", Bytes: len(f.line)})
	}
}

func sessionIn(v any) string {
	o, _ := v.(map[string]any)
	s, _ := o["sessionId"].(string)
	return s
}

// opening are the requests whose response is the start of a session. An agent
// may speak of that session before it.
var opening = map[string]bool{"session/new": true, "session/load": true, "session/resume": true}

// input notes what a tool was told with: an answer to its permission is bound
// to that, and the request may show it otherwise.
func (a *ACP) input(m adapters.Moment) {
	params, _ := m.Payload["params"].(map[string]any)
	update, _ := params["update"].(map[string]any)
	call, _ := update["toolCallId"].(string)
	input, ok := update["rawInput"]
	if update["sessionUpdate"] != "tool_call" || call == "" {
		return
	}
	if len(a.args) >= acpCalls {
		clear(a.args)
	}
	digest := ""
	if ok {
		digest = event.Digest(input)
	}
	a.args[m.Session+"\n"+call] = digest
}

// introduce tells of a tool that a permission is asked for and of which nothing
// was said before: the request holds what an update would have.
func (a *ACP) introduce(m adapters.Moment) {
	params, _ := m.Payload["params"].(map[string]any)
	tool, _ := params["toolCall"].(map[string]any)
	call, _ := tool["toolCallId"].(string)
	if _, told := a.args[m.Session+"\n"+call]; told || call == "" {
		return
	}
	update := maps.Clone(tool)
	update["sessionUpdate"] = "tool_call"
	first := m
	first.Name = "session/update"
	first.Payload = map[string]any{"kind": "notification", "method": first.Name, "params": map[string]any{"sessionId": params["sessionId"], "update": update}}
	a.input(first)
	a.observe(first, 0)
}

func acpKey(agent bool, id string) string {
	if agent {
		return "agent " + id
	}
	return "editor " + id
}

func (a *ACP) request(f acpFrame, id string, m adapters.Moment) {
	key := acpKey(f.agent, id)
	c := acpCall{method: m.Name, params: m.Payload["params"], session: m.Session, name: event.DeriveID("acp", a.Session, key)}
	m.Payload["call"] = c.name
	if m.Name == "session/prompt" {
		c.run = event.DeriveID("acp run", a.Session, m.Session, key)
		m.Payload["run"] = c.run
	}
	if m.Session == "" {
		c.early = &m
	}
	if _, known := a.calls[key]; !known {
		if opening[m.Name] {
			a.opens++
		}
		if a.order = append(a.order, key); len(a.order) > acpCalls {
			delete(a.calls, a.order[0])
			a.order = a.order[1:]
		}
	}
	a.calls[key] = c
	if f.agent && m.Name == acpPermission && c.early == nil {
		a.introduce(m)
	}
	switch {
	case c.early != nil: // with its response
	case f.agent && a.Answer && m.Name == acpPermission:
		params, _ := m.Payload["params"].(map[string]any)
		call, _ := params["toolCall"].(map[string]any)
		tool, _ := call["toolCallId"].(string)
		if digest := a.args[m.Session+"\n"+tool]; digest != "" {
			m.Payload["input"] = digest
		}
		a.known(m.Session)
		a.await(m, id, len(f.line))
	default:
		a.observe(m, len(f.line))
	}
}

func (a *ACP) response(f acpFrame, id string, m adapters.Moment) {
	key := acpKey(!f.agent, id)
	c, ok := a.calls[key]
	if !ok {
		return // of a request that nobody saw: nothing is known of it
	}
	delete(a.calls, key)
	if opening[c.method] {
		a.opens--
	}
	m.Name = c.method
	m.Payload["method"], m.Payload["call"] = c.method, c.name
	if c.params != nil {
		m.Payload["request"] = c.params
	}
	if c.run != "" {
		m.Payload["run"] = c.run
	}
	if m.Session = c.session; m.Session == "" {
		m.Session = sessionIn(m.Payload["result"])
	}
	if m.Session == "" {
		a.observe(m, len(f.line))
	} else {
		a.Road.Observe(m, len(f.line))
		a.known(m.Session)
	}
	if c.early != nil {
		c.early.Session = m.Session
		a.observe(*c.early, 0)
	}
}

// observe puts a moment on the road. What names no session is of the one that
// was spoken of last; before the first, it waits for it.
func (a *ACP) observe(m adapters.Moment, size int) {
	if m.Session == "" {
		m.Session = a.last
	}
	if m.Session == "" || a.opens > 0 && !a.seen[m.Session] {
		if len(a.early) < acpEarly {
			a.early = append(a.early, m)
		}
		return
	}
	a.Road.Observe(m, size)
	a.known(m.Session)
}

// known notes a session; what waited for the first is of it.
func (a *ACP) known(session string) {
	if len(a.seen) >= acpCalls {
		clear(a.seen)
	}
	a.last, a.seen[session] = session, true
	early := a.early
	a.early = nil
	for _, m := range early {
		if m.Session == "" {
			m.Session = session
		}
		a.Road.Observe(m, 0)
	}
}
