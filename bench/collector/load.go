package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"aep-wrap/event"
)

// target is the endpoint under load. Its requests are written by hand: what a
// client library costs is not the endpoint's.
type target struct {
	config
	host string
	run  string // names this run's sessions
	n    atomic.Int64
}

func dialTarget(c config) (*target, error) {
	u, err := url.Parse(c.url)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("-url %q: want http://HOST:PORT", c.url)
	}
	return &target{config: c, host: u.Host, run: event.NewID(time.Now())}, nil
}

func (t *target) session(name string) string { return "bench-" + t.run + "-" + name }

// line appends an ordinary event of a session, about 400 bytes.
func (t *target) line(dst []byte, session string, seq int64) []byte {
	return fmt.Appendf(dst, `{"aep":"0.1","id":"%s%d","type":"tool.completed","subject":"Bash","time":"2026-07-03T10:15:04.221Z","source":"aep://bench/agent/bench/session/%s","agent":"bench","session":"%s","run":"r1","seq":%d,"capture":"metadata","data":{"tool":{"name":"Bash","call_id":"t%d"},"status":"success","duration_ms":%d}}`+"\n",
		t.run, t.n.Add(1), session, session, seq, seq, time.Now().UnixNano()/1000)
}

// wire is one keep-alive connection.
type wire struct {
	net.Conn
	r *bufio.Reader
	t *target
	b []byte
}

func (t *target) dial() (*wire, error) {
	conn, err := net.Dial("tcp", t.host)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn, r: bufio.NewReaderSize(conn, 64<<10), t: t}, nil
}

func (w *wire) head(method, path string, more ...string) {
	w.b = append(w.b[:0], method+" "+path+" HTTP/1.1\r\nHost: "+w.t.host+"\r\nAEP-Version: "+event.Version+"\r\n"...)
	if w.t.token != "" {
		w.b = append(w.b, "Authorization: Bearer "+w.t.token+"\r\n"...)
	}
	for _, h := range more {
		w.b = append(w.b, h+"\r\n"...)
	}
	w.b = append(w.b, "\r\n"...)
}

// post sends a batch and waits for its answer.
func (w *wire) post(body []byte) error {
	w.head("POST", "/events", "Content-Type: application/x-ndjson", "Content-Length: "+strconv.Itoa(len(body)))
	w.b = append(w.b, body...)
	if _, err := w.Write(w.b); err != nil {
		return err
	}
	resp, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("POST answered %s: %s", resp.Status, text)
	}
	return err
}

// stream opens /stream with a query.
func (t *target) stream(query url.Values) (*wire, *http.Response, error) {
	w, err := t.dial()
	if err != nil {
		return nil, nil, err
	}
	w.head("GET", "/stream?"+query.Encode(), "Accept: text/event-stream")
	if _, err := w.Write(w.b); err != nil {
		w.Close()
		return nil, nil, err
	}
	resp, err := http.ReadResponse(w.r, nil)
	if err == nil && resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		err = fmt.Errorf("GET /stream answered %s: %s", resp.Status, text)
	}
	if err != nil {
		w.Close()
		return nil, nil, err
	}
	return w, resp, nil
}

func filter(session string) url.Values {
	raw, _ := json.Marshal(map[string]string{"session": session})
	return url.Values{"filter": {string(raw)}}
}

// follow counts the messages of a stream, and how old each is by the time that
// its event carries, until the connection is closed.
func follow(body io.Reader, seen func(age time.Duration)) {
	r := bufio.NewReaderSize(body, 64<<10)
	mark := []byte(`"duration_ms":`)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
		if !bytes.HasPrefix(line, []byte("data:")) {
			continue
		}
		age := time.Duration(-1)
		if i := bytes.LastIndex(line, mark); i >= 0 {
			digits := line[i+len(mark):]
			end := bytes.IndexByte(digits, '}')
			if end > 0 {
				if us, err := strconv.ParseInt(string(digits[:end]), 10, 64); err == nil {
					age = time.Duration(time.Now().UnixNano()/1000-us) * time.Microsecond
				}
			}
		}
		seen(age)
	}
}

// cpu is the processor time that the endpoint has used.
func (t *target) cpu() time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", t.pid))
	if t.pid == 0 || err != nil {
		return 0
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond // the kernel's ticks, for user space always 100 a second
}

// rss is the endpoint's memory in MiB.
func (t *target) rss() float64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", t.pid))
	_, rest, ok := strings.Cut(string(raw), "VmRSS:")
	if !ok {
		return 0
	}
	kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kb / 1024
}

// perEvent is what the endpoint spent on each of n.
func (t *target) perEvent(before time.Duration, n int64, what string) []figure {
	if t.pid == 0 || n == 0 {
		return nil
	}
	return []figure{{"processor time per " + what, float64(t.cpu()-before) / float64(time.Microsecond) / float64(n), "µs"}}
}

// percentiles of durations, as figures in milliseconds.
func percentiles(d []time.Duration) []figure {
	if len(d) == 0 {
		return nil
	}
	slices.Sort(d)
	at := func(p float64) float64 {
		return float64(d[min(len(d)-1, int(p*float64(len(d))))]) / float64(time.Millisecond)
	}
	return []figure{{"p50", at(0.5), "ms"}, {"p99", at(0.99), "ms"}, {"worst", at(1), "ms"}}
}

// ---- the measurements

// posting sends batches on several connections as fast as they are taken.
func posting(t *target, connections, batch int) ([]figure, error) {
	var total atomic.Int64
	errs := make([]error, connections)
	var wg sync.WaitGroup
	before, start := t.cpu(), time.Now()
	for c := range connections {
		wg.Go(func() {
			w, err := t.dial()
			if err != nil {
				errs[c] = err
				return
			}
			defer w.Close()
			session, seq := t.session(fmt.Sprintf("post-%d-%d", batch, c)), int64(0)
			var body []byte
			for time.Since(start) < t.length {
				body = body[:0]
				for range batch {
					body = t.line(body, session, seq)
					seq++
				}
				if errs[c] = w.post(body); errs[c] != nil {
					return
				}
				total.Add(int64(batch))
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	out := []figure{{"events", float64(total.Load()) / took.Seconds(), "/s"}}
	out = append(out, t.perEvent(before, total.Load(), "event")...)
	return out, errors.Join(errs...)
}

// paced posts single events at a rate, on a few connections in turn.
func (t *target) paced(session string, rate int) (sent int64, err error) {
	const connections = 4
	jobs := make(chan int64, rate)
	errs := make([]error, connections)
	var wg sync.WaitGroup
	for c := range connections {
		w, err := t.dial()
		if err != nil {
			return 0, err
		}
		wg.Go(func() {
			defer w.Close()
			for seq := range jobs {
				if errs[c] == nil {
					errs[c] = w.post(t.line(nil, session, seq))
				}
			}
		})
	}
	start := time.Now()
	for sent == 0 || time.Since(start) < t.length { // on a machine that stands still, too
		for due := int64(time.Since(start).Seconds() * float64(rate)); sent < due; sent++ {
			jobs <- sent
		}
		time.Sleep(200 * time.Microsecond)
	}
	close(jobs)
	wg.Wait()
	return sent, errors.Join(errs...)
}

// settled waits until all that was sent has arrived, and a moment longer for what
// should not. What does not arrive for long is lost.
func settled(arrived *atomic.Int64, want int64) {
	n, since := int64(-1), time.Now()
	for time.Since(since) < 10*time.Second {
		now := arrived.Load()
		if now >= want {
			break
		}
		if now != n {
			n, since = now, time.Now()
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
}

// latency is from before a POST to the event on a stream, at 1,000 a second.
func latency(t *target) ([]figure, error) {
	const rate = 1000
	session := t.session("latency")
	w, resp, err := t.stream(filter(session)) //nolint:bodyclose // the connection is closed
	if err != nil {
		return nil, err
	}
	var ages []time.Duration
	var arrived atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		follow(resp.Body, func(age time.Duration) { ages = append(ages, age); arrived.Add(1) })
	}()
	sent, err := t.paced(session, rate)
	if err == nil {
		settled(&arrived, sent)
	}
	w.Close()
	<-done
	if err == nil && int64(len(ages)) != sent {
		err = fmt.Errorf("%d of %d events arrived", len(ages), sent)
	}
	return percentiles(ages), err
}

// fanOut is 2,000 events a second to many subscribers, half of which match.
func fanOut(t *target) ([]figure, error) {
	const rate = 2000
	session := t.session("fan-out")
	streams := make([]*wire, t.subscribers)
	ages := make([][]time.Duration, t.subscribers)
	var arrived atomic.Int64
	var wg sync.WaitGroup
	for i := range streams {
		of := session
		if i%2 == 1 {
			of = t.session("nobody")
		}
		w, resp, err := t.stream(filter(of))
		if err != nil {
			return nil, err
		}
		streams[i] = w
		wg.Go(func() {
			follow(resp.Body, func(age time.Duration) { ages[i] = append(ages[i], age); arrived.Add(1) })
		})
	}
	before := t.cpu()
	sent, err := t.paced(session, rate)
	want := sent * int64((t.subscribers+1)/2)
	if err == nil {
		settled(&arrived, want)
	}
	spent := t.cpu() - before
	for _, w := range streams {
		w.Close()
	}
	wg.Wait()
	all := slices.Concat(ages...)
	if err == nil && int64(len(all)) != want {
		err = fmt.Errorf("%d of %d deliveries arrived", len(all), want)
	}
	out := percentiles(all)
	if t.pid > 0 && len(all) > 0 {
		out = append(out, figure{"processor time per delivery", float64(spent) / float64(time.Microsecond) / float64(len(all)), "µs"})
	}
	return out, err
}

// replay is 10,000 events of one session, from the request to the end.
func replay(t *target) ([]figure, error) {
	const events = 10_000
	session := t.session("replay")
	w, err := t.dial()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	for seq := int64(0); seq < events; {
		var body []byte
		for range 1000 {
			body = t.line(body, session, seq)
			seq++
		}
		if err := w.post(body); err != nil {
			return nil, err
		}
	}
	query := filter(session)
	query.Set("from", "all")
	query.Set("live", "0")
	var took []time.Duration
	before := t.cpu()
	const times = 9
	for range times {
		start := time.Now()
		w, resp, err := t.stream(query) //nolint:bodyclose // the connection is closed
		if err != nil {
			return nil, err
		}
		n := 0
		follow(resp.Body, func(time.Duration) { n++ })
		took = append(took, time.Since(start))
		w.Close()
		if n != events {
			return nil, fmt.Errorf("%d of %d events came", n, events)
		}
	}
	slices.Sort(took)
	out := []figure{{"10,000 events", float64(took[times/2]) / float64(time.Millisecond), "ms"}}
	return append(out, t.perEvent(before, events*times, "event")...), nil
}

// memory is the endpoint's: as it is, with 10,000 events in 100 sessions, and
// with subscribers to whom nothing happens.
func memory(t *target) ([]figure, error) {
	if t.pid == 0 {
		return nil, nil
	}
	out := []figure{{"as it is", t.rss(), "MiB"}}
	w, err := t.dial()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	for s := range 100 {
		session := t.session(fmt.Sprintf("memory-%d", s))
		var body []byte
		for seq := range int64(100) {
			body = t.line(body, session, seq)
		}
		if err := w.post(body); err != nil {
			return nil, err
		}
	}
	out = append(out, figure{"with 10,000 events in 100 sessions", t.rss(), "MiB"})
	streams := make([]*wire, 0, t.idle)
	defer func() {
		for _, s := range streams {
			s.Close()
		}
	}()
	for range t.idle {
		s, _, err := t.stream(filter(t.session("nobody"))) //nolint:bodyclose // the connection is closed
		if err != nil {
			return nil, err
		}
		streams = append(streams, s)
	}
	return append(out, figure{fmt.Sprintf("and with %d subscribers", t.idle), t.rss(), "MiB"}), nil
}

// ---- the socket

// frame appends a client's text frame. Its mask is zero, which is a legal one
// and costs nothing.
func frame(dst, payload []byte) []byte {
	dst = append(dst, 0x81)
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, 0x80|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0x80|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, 0x80|127), uint64(n))
	}
	return append(append(dst, 0, 0, 0, 0), payload...)
}

// message reads a server's message; others than text are passed over.
func (w *wire) message() ([]byte, error) {
	for {
		var h [2]byte
		if _, err := io.ReadFull(w.r, h[:]); err != nil {
			return nil, err
		}
		n := uint64(h[1] & 0x7f)
		size := map[uint64]int{126: 2, 127: 8}[n]
		if size > 0 {
			var b [8]byte
			if _, err := io.ReadFull(w.r, b[8-size:]); err != nil {
				return nil, err
			}
			n = binary.BigEndian.Uint64(b[:])
		}
		if n > 1<<20 {
			return nil, fmt.Errorf("a message of %d bytes", n)
		}
		payload := make([]byte, n)
		if _, err := io.ReadFull(w.r, payload); err != nil {
			return nil, err
		}
		switch h[0] & 0x0f {
		case 1:
			return payload, nil
		case 8:
			return nil, fmt.Errorf("it closed the socket: %q", payload)
		}
	}
}

// socket opens /socket and says hello.
func (t *target) socket(role, capabilities string) (*wire, error) {
	w, err := t.dial()
	if err != nil {
		return nil, err
	}
	err = func() error {
		w.head("GET", "/socket", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: YmVuY2gtYmVuY2gtYmVuYw==")
		if _, err := w.Write(w.b); err != nil {
			return err
		}
		resp, err := http.ReadResponse(w.r, nil) //nolint:bodyclose // the connection is closed
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusSwitchingProtocols {
			return fmt.Errorf("GET /socket answered %s", resp.Status)
		}
		if err := w.say(`{"type":"hello","role":"` + role + `","versions":["` + event.Version + `"],"identity":{"agent":"bench","instance":"1"},"capabilities":` + capabilities + `}`); err != nil {
			return err
		}
		if raw, err := w.message(); err != nil || !bytes.Contains(raw, []byte(`"hello"`)) {
			return fmt.Errorf("it did not say hello: %s %w", raw, err)
		}
		return nil
	}()
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *wire) say(text string) error {
	w.b = frame(w.b[:0], []byte(text))
	_, err := w.Write(w.b)
	return err
}

// control is how long a command takes there and its acknowledgement back: a
// target that answers at once, a sender that watches the target's session.
func control(t *target) ([]figure, error) {
	if t.token == "" {
		return nil, nil // nobody takes commands of who shows no token
	}
	const verb = "control.pause"
	session := t.session("control")
	target, err := t.socket("emitter", `{"control":{"accepts":["`+verb+`"]}}`)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	sender, err := t.socket("consumer", `{}`)
	if err != nil {
		return nil, err
	}
	defer sender.Close()
	envelope := func(id, typ, agent, rest string) string {
		return fmt.Sprintf(`{"aep":"0.1","id":"%s","type":"%s","time":"2026-07-03T10:15:04.221Z","source":"aep://bench/agent/%s/session/%s","agent":"%s","session":"%s"%s}`,
			id, typ, agent, session, agent, session, rest)
	}
	// The target claims its session, and the sender watches it.
	if err := target.say(envelope(t.run+"c0", "session.started", "bench", `,"seq":0,"data":{}`)); err != nil {
		return nil, err
	}
	if err := target.say(`{"type":"ping","t":1}`); err != nil {
		return nil, err
	}
	if err := target.until(`"pong"`); err != nil {
		return nil, err
	}
	if err := sender.say(`{"type":"subscribe","id":"1","filter":{"session":"` + session + `","type":["control.accepted","control.rejected"]}}`); err != nil {
		return nil, err
	}
	if err := sender.until(`"subscribed"`); err != nil {
		return nil, err
	}
	answered := make(chan error, 1)
	go func() {
		for seq := 1; ; seq++ {
			raw, err := target.message()
			if err != nil {
				answered <- err
				return
			}
			var command struct{ ID, Type string }
			if err := json.Unmarshal(raw, &command); err != nil || command.Type != verb {
				seq--
				continue
			}
			if err := target.say(envelope(fmt.Sprint(t.run, "a", seq), "control.accepted", "bench", fmt.Sprintf(`,"seq":%d,"cause":%q,"data":{}`, seq, command.ID))); err != nil {
				answered <- err
				return
			}
		}
	}()
	var took []time.Duration
	before := t.cpu()
	for start := time.Now(); len(took) == 0 || time.Since(start) < t.length; {
		id := fmt.Sprint(t.run, "k", len(took))
		sent := time.Now()
		if err := sender.say(envelope(id, verb, "bench-sender", `,"data":{}`)); err != nil {
			return nil, err
		}
		if err := sender.until(id); err != nil {
			return nil, err
		}
		took = append(took, time.Since(sent))
	}
	target.Close()
	if err := <-answered; err != nil && !errors.Is(err, net.ErrClosed) {
		return nil, err
	}
	return append(percentiles(took), t.perEvent(before, int64(len(took)), "command")...), nil
}

// until reads until a message holds a text.
func (w *wire) until(text string) error {
	for {
		raw, err := w.message()
		switch {
		case err != nil:
			return err
		case bytes.Contains(raw, []byte(`"type":"error"`)):
			return fmt.Errorf("it said %s", raw)
		case bytes.Contains(raw, []byte(text)):
			return nil
		}
	}
}

// wsEmit sends events on a socket, with a ping behind each thousand, and waits
// for the last pong.
func wsEmit(t *target) ([]figure, error) {
	w, err := t.socket("emitter", `{}`)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	const batch, ahead = 1000, 4
	slots := make(chan struct{}, ahead)
	pongs := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for {
			raw, err := w.message()
			if err == nil && bytes.Contains(raw, []byte(`"error"`)) {
				err = fmt.Errorf("it said %s", raw)
			}
			if err != nil {
				pongs <- err
				return
			}
			if bytes.Contains(raw, []byte(`"pong"`)) {
				select {
				case <-slots:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	session := t.session("ws")
	before, start := t.cpu(), time.Now()
	sent := int64(0)
	var buf, line []byte
	for n := 1; time.Since(start) < t.length; n++ {
		buf = buf[:0]
		for range batch {
			line = t.line(line[:0], session, sent)
			buf = frame(buf, line[:len(line)-1])
			sent++
		}
		buf = frame(buf, fmt.Appendf(nil, `{"type":"ping","t":%d}`, n))
		select {
		case slots <- struct{}{}:
		case err := <-pongs:
			return nil, err
		}
		if _, err := w.Write(buf); err != nil {
			return nil, err
		}
	}
	for range ahead { // all pongs are there when all slots are free
		select {
		case slots <- struct{}{}:
		case err := <-pongs:
			return nil, err
		case <-time.After(30 * time.Second):
			return nil, errors.New("a pong is missing")
		}
	}
	took := time.Since(start)
	out := []figure{{"events", float64(sent) / took.Seconds(), "/s"}}
	return append(out, t.perEvent(before, sent, "event")...), nil
}

// ---- floors

// floors are what the same work costs at least on this machine now.
func floors(t *target) ([]figure, error) {
	host, pid, stop, err := startNull()
	if err != nil {
		return nil, err
	}
	defer stop()
	null := target{config: t.config, host: host, run: t.run}
	null.pid = pid
	var out []figure
	for _, m := range []struct {
		name               string
		connections, batch int
	}{{"a null server, 1000 on one connection:", 1, 1000}, {"a null server, 1 on eight connections:", 8, 1}} {
		figures, err := posting(&null, m.connections, m.batch)
		if err != nil {
			return nil, err
		}
		for _, f := range figures {
			f.Name = m.name + " " + f.Name
			out = append(out, f)
		}
	}
	line := t.line(nil, t.session("floor"), 0)
	const times = 20_000
	start := time.Now()
	for range times {
		if !json.Valid(line) {
			return nil, errors.New("our own event is no JSON")
		}
	}
	out = append(out, figure{fmt.Sprintf("one JSON scan of %d bytes", len(line)), float64(time.Since(start)) / float64(time.Microsecond) / times, "µs"})
	write, err := writes(line, times)
	return append(out, figure{fmt.Sprintf("one TCP write of %d bytes", len(line)), write, "µs"}), err
}

// writes is what a write to a TCP connection takes, whose other side reads.
func writes(line []byte, times int) (float64, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			defer conn.Close()
			_, _ = io.Copy(io.Discard, conn)
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	start := time.Now()
	for range times {
		if _, err := conn.Write(line); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(start)) / float64(time.Microsecond) / float64(times), nil
}
