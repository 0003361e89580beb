package agent

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/agent/hookclient"
)

// witness is an Observer that remembers.
type witness struct {
	mu      sync.Mutex
	moments []adapters.Moment
	refused []Refusal
	held    func(adapters.Moment) *Held
}

func (w *witness) Hook(m adapters.Moment, n int) *Held {
	w.Observe(m, n)
	if w.held == nil {
		return nil
	}
	return w.held(m)
}

func (w *witness) Observe(m adapters.Moment, _ int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moments = append(w.moments, m)
}

func (w *witness) Refuse(x Refusal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, x)
}

// take gives what was seen since the last take.
func (w *witness) take() (ms []adapters.Moment, rs []Refusal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ms, rs, w.moments, w.refused = w.moments, w.refused, nil, nil
	return
}

func startHooks(t *testing.T, held func(adapters.Moment) *Held) (*HookServer, adapters.Endpoint, *witness) {
	t.Helper()
	w := &witness{held: held}
	h, err := ServeHooks(HookConfig{Adapter: "claude-code", Dir: t.TempDir(), Observer: w})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		h.Close(ctx)
	})
	var e adapters.Endpoint
	h.Endpoint(&e)
	return h, e, w
}

func deep(n int) string { return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}` }

type hostile struct {
	name, payload string
	refused       string // the reason, or "" for a moment
}

// Payloads as hostile as they come: each way in answers with no decision, and
// each is a moment or a refusal.
var payloads = []hostile{
	{"an object", `{"session_id":"s","tool_name":"Bash"}`, ""},
	{"an object and a newline", "{\"session_id\":\"s\"}\n", ""},
	{"nothing", "", ""},
	{"white space", " \n ", ""},
	{"garbage", "garbage", "not_json"},
	{"two objects", `{} {}`, "not_json"},
	{"an array", `[1,2]`, "not_json"},
	{"a string", `"x"`, "not_json"},
	{"truncated", `{"session_id":"s","tool_na`, "not_json"},
	{"a member twice", `{"a":1,"a":2}`, "duplicate_member"},
	{"not UTF-8", "{\"a\":\"\xff\xfe\"}", ""},
	{"not UTF-8, and long", "{\"a\":\"" + strings.Repeat("\xff", longString-1) + "\"}", ""},
	{"not UTF-8 where no string is", "{\xff}", "not_json"},
	{"a NUL byte", "{\"a\":\"\x00\"}", "not_json"},
	{"too deep", deep(20000), "too_deep"},
	{"closers without end", strings.Repeat("}", 1000), "not_json"},
	{"a quote in a quote", `{"a":"\"}{","b":[{"c":"]"}]}`, ""},
}

// largePayloads are beyond each of the bounds. They are made when they are
// wanted: the test binary is also the processes whose memory is looked at.
func largePayloads() []hostile {
	return []hostile{
		{"large and whole", `{"a":"` + strings.Repeat("x", smallPayload) + `"}`, ""},
		{"a long string", `{"a":"` + strings.Repeat("x", 2*wholePayload) + `"}`, ""},
		{"many values", `{"a":[` + strings.Repeat(`1,`, maxValues) + `1]}`, "too_large"},
		{"as many values as may be", `{"a":[` + strings.Repeat(`1,`, maxValues-3) + `1]}`, ""},
		{"many small members", `{"a":[` + strings.Repeat(`"xxxxxxxx",`, maxKept/8) + `1]}`, "too_large"},
		{"large garbage", strings.Repeat("x", 2*wholePayload), "not_json"},
		{"larger garbage", strings.Repeat("x", 2*maxKept), "too_large"},
		{"a long string without end", `{"a":"` + strings.Repeat("x", 2*wholePayload), "not_json"},
		{"too large", `{"a":"` + strings.Repeat("x", maxPayload) + `"}`, "too_large"},
	}
}

func TestHookPayloads(t *testing.T) {
	_, e, w := startHooks(t, nil)
	ways := map[string]func(payload string) (string, error){
		"http": func(p string) (string, error) {
			resp, err := http.Post(e.HookURL+"/claude-code/PreToolUse", "application/json", strings.NewReader(p))
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if resp.StatusCode != 200 {
				err = fmt.Errorf("status %s", resp.Status)
			}
			return string(b), err
		},
		"helper": func(p string) (string, error) {
			b, err := hookclient.Ask(e.Socket, []string{"claude-code", "PreToolUse"}, strings.NewReader(p))
			return string(b), err
		},
	}
	for way, ask := range ways {
		for _, tt := range append(payloads, largePayloads()...) {
			t.Run(way+"/"+tt.name, func(t *testing.T) {
				answer, err := ask(tt.payload)
				if err != nil || answer != "" {
					t.Fatalf("answer %q, error %v; want no decision", answer, err)
				}
				ms, rs := w.take()
				if way == "helper" && tt.name == "two objects" {
					// The helper's stdin may stay open: the first value is the payload.
					if len(ms) != 1 && len(rs) != 1 {
						t.Fatalf("moments %v, refused %v", ms, rs)
					}
					return
				}
				switch {
				case tt.refused == "" && (len(ms) != 1 || ms[0].Name != "PreToolUse" || ms[0].Channel != adapters.Hook):
					t.Fatalf("moments %v, refused %v", ms, rs)
				case tt.refused != "" && (len(rs) != 1 || rs[0].Reason != tt.refused || rs[0].Name != "PreToolUse"):
					t.Fatalf("refused %v, want %s", rs, tt.refused)
				}
			})
		}
	}
}

func TestHookLarge(t *testing.T) {
	_, e, w := startHooks(t, nil)
	body := func(n int) io.Reader {
		return io.MultiReader(strings.NewReader(`{"a":"`), bytes.NewReader(bytes.Repeat([]byte("x"), n)), strings.NewReader(`"}`))
	}
	for _, tt := range []struct {
		size   int
		reason string
	}{{1 << 20, ""}, {maxPayload + 1, "too_large"}} {
		answer, err := hookclient.Ask(e.Socket, []string{"claude-code", "E"}, body(tt.size))
		if err != nil || len(answer) > 0 {
			t.Fatalf("%d bytes by the helper: %q, %v", tt.size, answer, err)
		}
		resp, err := http.Post(e.HookURL+"/claude-code/E", "application/json", body(tt.size))
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%d bytes by http: %v", tt.size, err)
		}
		resp.Body.Close()
		ms, rs := w.take()
		if tt.reason == "" && len(ms) != 2 || tt.reason != "" && (len(rs) != 2 || rs[0].Reason != tt.reason || rs[1].Reason != tt.reason) {
			t.Fatalf("%d bytes: %d moments, refused %v", tt.size, len(ms), rs)
		}
	}
}

// Whoever does not know the secret, or comes from a web page, sees nothing.
func TestHookGuard(t *testing.T) {
	h, e, w := startHooks(t, nil)
	other := strings.Replace(e.HookURL, *h.secret.Load(), NewSecret(), 1)
	for name, tt := range map[string]struct {
		url    string
		method string
		header map[string]string
		host   string
		want   int
	}{
		"right":          {url: e.HookURL + "/claude-code/E", want: 200},
		"no event":       {url: e.HookURL + "/claude-code", want: 200},
		"localhost":      {url: e.HookURL + "/claude-code/E", host: "localhost:" + port(h.httpAddr), want: 200},
		"another secret": {url: other + "/claude-code/E", want: 404},
		"no secret":      {url: "http://" + h.httpAddr + "/hook/claude-code/E", want: 404},
		"the root":       {url: "http://" + h.httpAddr + "/", method: "GET", want: 404},
		"a page":         {url: e.HookURL + "/claude-code/E", header: map[string]string{"Origin": "https://evil.example"}, want: 404},
		"a rebound name": {url: e.HookURL + "/claude-code/E", host: "evil.example", want: 404},
		"GET":            {url: e.HookURL + "/claude-code/E", method: "GET", want: 405},
		"otlp secret":    {url: strings.Replace(e.OTLPURL, *h.secret.Load(), "x", 1) + "/v1/logs", want: 404},
	} {
		t.Run(name, func(t *testing.T) {
			method := tt.method
			if method == "" {
				method = "POST"
			}
			req, _ := http.NewRequest(method, tt.url, strings.NewReader("{}"))
			if tt.host != "" {
				req.Host = tt.host
			}
			for k, v := range tt.header {
				req.Header.Set(k, v)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != tt.want {
				t.Fatalf("status %d, want %d", resp.StatusCode, tt.want)
			}
			ms, rs := w.take()
			if got := len(ms) + len(rs); (got > 0) != (tt.want == 200) {
				t.Fatalf("%d things observed", got)
			}
		})
	}
	if fi, err := os.Stat(e.Socket); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", fi.Mode(), err)
	}
}

func port(addr string) string { _, p, _ := net.SplitHostPort(addr); return p }

// Hooks of another runtime than the launched one are not mapped by its table.
func TestHookOtherAdapter(t *testing.T) {
	_, e, w := startHooks(t, nil)
	if _, err := hookclient.Ask(e.Socket, []string{"codex", "Stop"}, strings.NewReader(`{}`)); err != nil {
		t.Fatal(err)
	}
	if ms, rs := w.take(); len(ms) != 0 || len(rs) != 1 || rs[0].Reason != "unknown_adapter" {
		t.Fatalf("moments %v, refused %v", ms, rs)
	}
}

// A helper whose stdin stays open is answered when the object is whole, and
// after a while when it is not.
func TestHookStdinHeldOpen(t *testing.T) {
	_, e, w := startHooks(t, nil)
	for _, tt := range []struct {
		sent, reason string
	}{
		{`{"a":{"b":["}"]}}`, ""},
		{`{"a":`, "timeout"}, // or the helper gave up a moment before
	} {
		if tt.reason != "" && testing.Short() {
			continue // waits for a deadline
		}
		// A busy machine is slow now and then, what waits for a deadline is each time.
		var took []time.Duration
		for tries := 5; ; {
			r, stdin, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			stdin.WriteString(tt.sent)
			start := time.Now()
			answer, err := hookclient.Ask(e.Socket, []string{"claude-code", "E"}, r)
			took = append(took, time.Since(start))
			if len(answer) > 0 || err != nil && tt.reason == "" {
				t.Errorf("%s: %q, %v", tt.sent, answer, err)
			}
			stdin.Close()
			r.Close()
			var ms []adapters.Moment
			var rs []Refusal
			eventually(t, "what became of it", func() bool { ms, rs = w.take(); return len(ms)+len(rs) > 0 })
			if tt.reason == "" && len(ms) != 1 || tt.reason != "" && (len(rs) != 1 || rs[0].Reason != tt.reason && rs[0].Reason != "not_json") {
				t.Errorf("%s: moments %v, refused %v", tt.sent, ms, rs)
			}
			if tt.reason != "" || took[len(took)-1] <= stall/2 {
				break
			}
			if tries--; tries == 0 {
				t.Errorf("%s: took %v", tt.sent, took)
				break
			}
		}
	}
}

// A held moment is answered late; one whose runtime goes away is given up.
func TestHookHold(t *testing.T) {
	held, given, heard := make(chan bool, 4), make(chan string, 4), make(chan error, 4)
	_, e, _ := startHooks(t, func(m adapters.Moment) *Held {
		if m.Payload["wait"] == true {
			return &Held{wait: func(ctx context.Context) []byte {
				held <- true
				<-ctx.Done()
				given <- "gone"
				return nil
			}}
		}
		return &Held{told: func(err error) { heard <- err }, wait: func(context.Context) []byte {
			if m.Payload["now"] != true {
				time.Sleep(400 * time.Millisecond)
			}
			return []byte(`{"decision":"allow"}`)
		}}
	})
	answer, err := hookclient.Ask(e.Socket, []string{"claude-code", "PermissionRequest"}, strings.NewReader(`{}`))
	if err != nil || string(answer) != `{"decision":"allow"}` {
		t.Errorf("helper: %q, %v", answer, err)
	}
	resp, err := http.Post(e.HookURL+"/claude-code/PermissionRequest", "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(b) != `{"decision":"allow"}` {
		t.Errorf("http: %q", b)
	}
	for range 2 {
		if err := <-heard; err != nil {
			t.Errorf("an answer that was heard: %v", err)
		}
	}

	// One who hangs up as soon as it has its answer did hear it.
	for range 100 {
		c, err := net.Dial("tcp", strings.Split(e.HookURL, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		at := strings.SplitN(e.HookURL, "/", 4)
		fmt.Fprintf(c, "POST /%s/claude-code/PermissionRequest HTTP/1.1\r\nHost: %s\r\nContent-Length: 12\r\n\r\n{\"now\":true}", at[3], at[2])
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		c.Close()
		if err != nil || len(answer) == 0 {
			t.Fatal("no answer")
		}
		if err := <-heard; err != nil {
			t.Fatalf("an answer that was heard by who then hung up: %v", err)
		}
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "POST", e.HookURL+"/claude-code/PermissionRequest", strings.NewReader(`{"wait":true}`))
	go func() {
		<-held
		cancel()
	}()
	http.DefaultClient.Do(req)
	c, err := net.Dial("unix", e.Socket)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, hookclient.Greeting+" claude-code PermissionRequest\n{\"wait\":true}")
	<-held
	c.Close()
	for range 2 {
		select {
		case <-given:
		case <-time.After(patience):
			t.Fatal("a hold outlived its runtime")
		}
	}
}

func TestHookCloseEndsHolds(t *testing.T) {
	held := make(chan bool, 2)
	h, e, _ := startHooks(t, func(adapters.Moment) *Held {
		return &Held{wait: func(ctx context.Context) []byte { held <- true; <-ctx.Done(); return nil }}
	})
	done := make(chan error, 2)
	go func() {
		_, err := hookclient.Ask(e.Socket, []string{"claude-code", "E"}, strings.NewReader(`{}`))
		done <- err
	}()
	go func() {
		resp, err := http.Post(e.HookURL+"/claude-code/E", "application/json", strings.NewReader(`{}`))
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	<-held
	<-held
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	start := time.Now()
	h.Close(ctx)
	if d := time.Since(start); d > patience/2 {
		t.Errorf("Close took %v", d)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Errorf("a held hook: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Dir(e.Socket)); err != nil {
		t.Error(err)
	}
}

const otlpBody = `{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"claude-code"}}]},
"scopeLogs":[{"logRecords":[
 {"timeUnixNano":"1","body":{"stringValue":"claude_code.tool_decision"},"attributes":[
  {"key":"event.name","value":{"stringValue":"tool_decision"}},{"key":"session.id","value":{"stringValue":"s-1"}},
  {"key":"decision","value":{"stringValue":"accept"}},{"key":"n","value":{"intValue":"9007199254740993"}},
  {"key":"b","value":{"boolValue":true}},{"key":"list","value":{"arrayValue":{"values":[{"stringValue":"x"},{"intValue":2}]}}},
  {"key":"kv","value":{"kvlistValue":{"values":[{"key":"k","value":{"doubleValue":1.5}}]}}}]},
 {"body":{"stringValue":"second"}}]}]}]}`

func TestOTLP(t *testing.T) {
	_, e, w := startHooks(t, nil)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, otlpBody)
	z.Close()
	for name, tt := range map[string]struct {
		body     io.Reader
		encoding string
	}{
		"plain":   {strings.NewReader(otlpBody), ""},
		"chunked": {io.MultiReader(strings.NewReader(otlpBody[:50]), strings.NewReader(otlpBody[50:])), ""},
		"gzip":    {&zipped, "gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			req, _ := http.NewRequest("POST", e.OTLPURL+"/v1/logs", tt.body)
			req.Header.Set("Content-Type", "application/json; charset=utf-8")
			if tt.encoding != "" {
				req.Header.Set("Content-Encoding", tt.encoding)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("%v %v", resp, err)
			}
			resp.Body.Close()
			ms, rs := w.take()
			if len(ms) != 2 || len(rs) != 0 {
				t.Fatalf("moments %v, refused %v", ms, rs)
			}
			got, err := json.Marshal(ms[0].Payload)
			want := `{"b":true,"body":"claude_code.tool_decision","decision":"accept","event.name":"tool_decision","kv":{"k":1.5},"list":["x",2],"n":9007199254740993,"resource":{"service.name":"claude-code"},"session.id":"s-1"}`
			if err != nil || string(got) != want {
				t.Errorf("payload\n%s\nwant\n%s", got, want)
			}
			if ms[0].Name != "tool_decision" || ms[0].Session != "s-1" || ms[1].Name != "second" {
				t.Errorf("names %q %q, session %q", ms[0].Name, ms[1].Name, ms[0].Session)
			}
		})
	}
	// A bomb is refused before it is inflated whole.
	var bomb bytes.Buffer
	z = gzip.NewWriter(&bomb)
	z.Write(make([]byte, 1<<20))
	z.Close()
	member := bomb.String()
	for range 3 * maxPayload >> 20 {
		bomb.WriteString(member)
	}
	for name, tt := range map[string]struct {
		body           string
		media, coding  string
		reason         string
		status, signal string
	}{
		"bomb":     {bomb.String(), "application/json", "gzip", "too_large", "200", "logs"},
		"garbage":  {"garbage", "application/json", "", "not_json", "200", "logs"},
		"not gzip": {"garbage", "application/json", "gzip", "not_gzip", "200", "logs"},
		"protobuf": {"\x0a", "application/x-protobuf", "", "not_json", "415", "logs"},
		"metrics":  {"{}", "application/json", "", "", "200", "metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			req, _ := http.NewRequest("POST", e.OTLPURL+"/v1/"+tt.signal, strings.NewReader(tt.body))
			req.Header.Set("Content-Type", tt.media)
			req.Header.Set("Content-Encoding", tt.coding)
			resp, err := http.DefaultClient.Do(req)
			if err != nil || fmt.Sprint(resp.StatusCode) != tt.status {
				t.Fatalf("%v %v", resp, err)
			}
			resp.Body.Close()
			_, rs := w.take()
			if tt.reason == "" && len(rs) != 0 || tt.reason != "" && (len(rs) != 1 || rs[0].Reason != tt.reason) {
				t.Errorf("refused %v, want %q", rs, tt.reason)
			}
		})
	}
}

func TestTurnsComeBack(t *testing.T) {
	h, e, _ := startHooks(t, nil)
	for _, tt := range append(payloads, largePayloads()...) {
		hookclient.Ask(e.Socket, []string{"claude-code", "E"}, strings.NewReader(tt.payload))
		resp, err := http.Post(e.HookURL+"/claude-code/E", "application/json", strings.NewReader(tt.payload))
		if err == nil {
			resp.Body.Close()
		}
	}
	deadline := time.Now().Add(patience)
	turns := func() int {
		return len(h.intake.reading) + len(h.intake.working) + len(h.intake.small) + len(h.requests)
	}
	for turns() != 0 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if n := turns(); n != 0 {
		t.Errorf("%d turns are taken when nothing is read", n)
	}
}

func FuzzObjectEnd(f *testing.F) {
	for _, tt := range payloads {
		f.Add(tt.payload)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var whole objectEnd
		found := whole.found([]byte(s))
		// The same in pieces of one byte, and a valid object is found at its end.
		var o objectEnd
		at := -1
		for i := range len(s) {
			if o.found([]byte{s[i]}) {
				at = i
				break
			}
		}
		if found != (at >= 0) {
			t.Fatalf("whole %v, by bytes at %d", found, at)
		}
		var v map[string]any
		if json.Unmarshal([]byte(s), &v) == nil && v != nil {
			if at < 0 || strings.TrimSpace(s[at+1:]) != "" {
				t.Fatalf("an object ends at %d of %d", at, len(s))
			}
		}
	})
}
