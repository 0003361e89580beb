package collector

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"aep-wrap/event"
)

func zipped(t *testing.T, body string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestIngestAnswers(t *testing.T) {
	s := serve(t, Config{Limits: Limits{Body: 4 << 10, BatchLines: 5, Line: 2 << 10}})
	version := []string{"AEP-Version", "0.1"}
	one := append(version, "Content-Type", "application/json")
	many := append(version, "Content-Type", "application/x-ndjson")
	zip := append(many, "Content-Encoding", "gzip")
	good := ev("s", 0, 1)
	command := `{"aep":"0.1","id":"c","type":"control.cancel","time":"2026-01-02T03:04:05Z","source":"aep://h/agent/u","agent":"u","session":"s"}`
	vendorCommand := strings.Replace(command, "control.cancel", "x.acme.control.instruct", 1)
	ack := ev("s", 0, 9)
	ack = strings.Replace(ack, "progress.status", "control.accepted", 1)
	routed := strings.Replace(command, "control.cancel", "attention.routed", 1)

	tests := []struct {
		name   string
		header []string
		body   string
		status int
		want   string // a part of the body
	}{
		{"one event", one, good, 202, ""},
		{"one event with a charset", append(version, "Content-Type", "application/json; charset=utf-8"), good, 202, ""},
		{"one event over several lines", one, strings.ReplaceAll(good, ",", ",\r\n  "), 202, ""},
		{"a batch", many, good + "\n" + ev("s", 0, 2) + "\n", 202, ""},
		{"a batch without a last newline", many, good + "\n" + ev("s", 0, 2), 202, ""},
		{"a batch with CRLF and blank lines", many, "\n" + good + "\r\n\r\n" + ev("s", 0, 2) + "\r\n", 202, ""},
		{"an empty batch", many, "", 202, ""},
		{"gzip", zip, zipped(t, good+"\n"), 202, ""},
		{"unknown type", many, strings.Replace(good, "progress.status", "progress.never_heard", 1), 202, ""},
		{"vendor type", many, strings.Replace(good, "progress.status", "x.acme.progress.made", 1), 202, ""},
		{"payload off its schema", many, strings.Replace(good, "progress.status", "tool.completed", 1), 202, ""},
		{"extension", many, ev("s", 0, 3, `"acmeregion":"eu-1"`), 202, ""},
		{"an acknowledgement", many, ack, 202, ""},
		{"attention.routed", many, routed, 202, ""},
		{"agent event", many, `{"aep":"0.1","id":"g","type":"agent.health","time":"2026-01-02T03:04:05Z","source":"aep://h/agent/a","agent":"a"}`, 202, ""},

		{"no version", head2("Content-Type", "application/json"), good, 426, `{"versions":["0.1"]}`},
		{"another major version", head2("AEP-Version", "9.9", "Content-Type", "application/json"), good, 426, `{"versions":["0.1"]}`},
		{"no content type", version, good, 415, `"error":"unsupported-content-type"`},
		{"another content type", append(version, "Content-Type", "text/plain"), good, 415, "application/x-ndjson"},
		{"another encoding", append(many, "Content-Encoding", "br"), good, 415, "unsupported-content-encoding"},
		{"gzip that is none", zip, good, 400, `"error":"invalid-body"`},
		{"gzip cut short", zip, zipped(t, good)[:20], 400, `"error":"invalid-body"`},
		{"gzip that inflates beyond the limit", zip, zipped(t, strings.Repeat(" ", 1<<20)), 413, `"limit":"body","max":4096`},
		{"a body too large", many, strings.Repeat(" ", 5<<10), 413, `"limit":"body"`},
		{"a line too long", many, ev("s", 0, 4, `"data":{"x":"`+strings.Repeat("x", 2<<10)+`"}`), 413, `"limit":"line"`},
		{"too many events, told before they are read", many, strings.Repeat("x\n", 6), 413, `"limit":"batch","max":5,"count":6`},

		{"not JSON", one, `{"aep":`, 400, `"error":"invalid-event"`},
		{"nothing", one, ``, 400, `"error":"invalid-event"`},
		{"an array", one, `[` + good + `]`, 400, `"error":"invalid-event"`},
		{"two values", one, good + good, 400, `"error":"invalid-event"`},
		{"no id", one, strings.Replace(good, `"id"`, `"idx"`, 1), 400, `"rule":"required"`},
		{"null", one, ev("s", 0, 1, `"run":null`), 400, `"error":"invalid-event"`},
		{"a member twice", one, ev("s", 0, 1, `"agent":"b"`), 400, `"rule":"duplicate-member"`},
		{"no session", one, strings.Replace(good, `"session"`, `"acmesession"`, 1), 400, `"rule":"scope"`},
		{"deep nesting", one, ev("s", 0, 1, `"data":{"x":`+strings.Repeat("[", 900)+strings.Repeat("]", 900)+`}`), 400, `"rule":"json"`},
		{"the second line", many, good + "\n" + strings.Replace(good, "0.1", "7", 1) + "\n" + "junk", 400, `"line":2,"index":1`},
		{"a line behind a blank one", many, good + "\n\njunk", 400, `"line":3,"index":1`},
		{"a command", many, good + "\n" + command, 403, `"error":"unauthorized"`},
		{"a vendor's command", one, vendorCommand, 403, `"error":"unauthorized"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := s.do("POST", "/events", head(tt.header...), strings.NewReader(tt.body))
			if a.status != tt.status || !strings.Contains(a.body, tt.want) {
				t.Errorf("got %d %s, want %d with %s", a.status, a.body, tt.status, tt.want)
			}
			if a.status >= 400 {
				var p map[string]any
				if err := json.Unmarshal([]byte(a.body), &p); err != nil {
					t.Errorf("the refusal is not JSON: %v", err)
				}
				if d, _ := p["detail"].(string); d == "" && a.status != 426 {
					t.Errorf("the refusal gives no detail: %s", a.body)
				}
			}
		})
	}
}

func head2(pairs ...string) []string { return pairs }

// Hostile bodies at the limits that are shipped.
func TestHostileBodies(t *testing.T) {
	s := serve(t, Config{})
	line := func(data string) string { return ev("s", 0, 1, `"data":`+data) }
	for _, tt := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"10 MB in one line", line(`{"x":"` + strings.Repeat("x", 10<<20) + `"}`), 413, `"limit":"line"`},
		{"7 MB in one line", line(`{"x":"` + strings.Repeat("x", 7<<20) + `"}`), 202, ""},
		{"17 MB", strings.Repeat(ev("s", 0, 1)+"\n", 17<<20/len(ev("s", 0, 1))), 413, `"limit":"body"`},
		{"100,000 events", strings.Repeat("x\n", 100_000), 413, `"limit":"batch"`},
		{"arrays 100,000 deep", line(`{"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`), 400, `"rule":"json"`},
		{"objects 100,000 deep", line(strings.Repeat(`{"x":`, 100_000) + "1" + strings.Repeat("}", 100_000)), 400, `"rule":"json"`},
		{"arrays that do not end", line(strings.Repeat("[", 1_000_000)), 400, `"rule"`},
		{"invalid UTF-8", line("{\"x\":\"\xff\xfe\"}"), 400, `"rule":"json"`},
		{"a NUL", line("{\"x\":\"\x00\"}"), 400, `"rule":"json"`},
		{"a byte order mark", "\ufeff" + ev("s", 0, 1), 400, `"rule":"json"`},
		{"a member twice, deep in data", line(`{"a":{"b":1,"b":2}}`), 400, `"rule":"duplicate-member"`},
		{"a member in another case", ev("s", 0, 1, `"Agent":"b"`), 400, `"rule":"extension"`},
		{"seq at its edge", ev("edge", 0, 1<<63-1), 202, ""},
		{"seq beyond", strings.Replace(ev("s", 0, 1), `"seq":1`, `"seq":9223372036854775808`, 1), 400, `"rule":"attribute-value"`},
		{"seq below", strings.Replace(ev("s", 0, 1), `"seq":1`, `"seq":-1`, 1), 400, `"rule":"attribute-value"`},
		{"seq a string", strings.Replace(ev("s", 0, 1), `"seq":1`, `"seq":"1"`, 1), 400, `"rule":"attribute-value"`},
		{"data an array", line(`[]`), 400, `"rule":"attribute-value"`},
		{"a session of 1 MB", ev(strings.Repeat("s", 1<<20), 0, 1), 202, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := s.do("POST", "/events", ndjson, strings.NewReader(tt.body))
			if a.status != tt.status || !strings.Contains(a.body, tt.want) {
				t.Errorf("got %d %s, want %d with %s", a.status, clip(a.body), tt.status, tt.want)
			}
			if len(a.body) > 2<<10 {
				t.Errorf("the refusal has %d bytes", len(a.body))
			}
		})
	}
	s.post(ev("alive", 0, 1))
	checkStore(t, s.hub.store)
}

// A batch is taken whole or refused whole.
func TestBatchIsWhole(t *testing.T) {
	s := serve(t, Config{})
	a := s.do("POST", "/events", ndjson, strings.NewReader(ev("whole", 0, 1)+"\n"+ev("whole", 0, 2)+"\nx\n"))
	if a.status != http.StatusBadRequest {
		t.Fatalf("got %d", a.status)
	}
	if got := dataLines(s.replay("from=all")); len(got) != 0 {
		t.Errorf("a refused batch left %d events", len(got))
	}
}

// The bytes that come in are the bytes that go out.
func TestBytesAreKept(t *testing.T) {
	s := serve(t, Config{})
	line := `{ "seq" : 1 , "session":"b","zz":"\u00e9\/","aep":"0.1", "id":"<&>","type":"x.acme.progress.made","time":"2026-01-02T03:04:05.123456+02:00","source":"aep://h","agent":"é","data":{"n":1.50e+3,"u":"\ud83d\ude00","b": [ 1,2 ]} }`
	if _, _, err := event.ParseHeader([]byte(line)); err != nil {
		t.Fatal(err)
	}
	live := s.open("", nil)
	s.post(line)
	live.data(line)
	if got := dataLines(s.replay("from=all")); len(got) != 1 || got[0] != line {
		t.Errorf("replayed %q", got)
	}
}

// A body that is promised and not sent takes no place of others' for long.
func TestBodiesInFlightAreBounded(t *testing.T) {
	s := serve(t, Config{Limits: Limits{InFlight: 256 << 10}})
	big := ev("s", 0, 1, `"data":{"x":"`+strings.Repeat("x", 1<<20)+`"}`)
	a := s.do("POST", "/events", ndjson, strings.NewReader(big))
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	for range 50 {
		s.post(ev("s", 0, 1))
	}
	if n := s.inFlight.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

func FuzzIngest(f *testing.F) {
	f.Add([]byte(ev("s", 0, 1)+"\n"+ev("s", 0, 2)), true)
	f.Add([]byte("{}"), false)
	f.Add([]byte("\r\n{\"a\"\r\n:1}"), true)
	c := New(Config{})
	f.Fuzz(func(t *testing.T, body []byte, lines bool) {
		items, status, p := c.parse(body, lines)
		if (status == 0) != (p.Error == "") {
			t.Fatalf("status %d with %+v", status, p)
		}
		for _, it := range items {
			frame := it.frame
			if n := bytes.Count(frame, []byte("\n")); n < 3 || n > 4 || !bytes.HasSuffix(frame, []byte("\n\n")) || bytes.IndexByte(frame, '\r') >= 0 {
				t.Fatalf("frame %q", frame)
			}
			if _, _, err := event.ParseHeader(it.line()); err != nil {
				t.Fatalf("%q: %v", it.line(), err)
			}
		}
	})
}
