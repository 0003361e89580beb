package mockmodel

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func post(t *testing.T, url, path, body string) *http.Response {
	t.Helper()
	resp, err := http.Post(url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func serve(t *testing.T) (*Server, string) {
	s := New("/work/dir")
	ts := httptest.NewServer(s)
	t.Cleanup(ts.Close)
	return s, ts.URL
}

const bashTool = `"tools":[{"name":"Bash"},{"name":"Task"}]`

func TestWholeAnswerIsDeterministic(t *testing.T) {
	_, url := serve(t)
	body := `{"model":"m",` + bashTool + `,"messages":[{"role":"user","content":"go [[script:safe]]"}]}`
	read := func() string {
		b, err := io.ReadAll(post(t, url, "/v1/messages", body).Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := read()
	if second := read(); first != second {
		t.Errorf("two answers to one request differ:\n%s\n%s", first, second)
	}
	for _, want := range []string{`"stop_reason":"tool_use"`, `"name":"Bash"`, `ls /work/dir`, `"id":"toolu_`} {
		if !strings.Contains(first, want) {
			t.Errorf("answer lacks %s: %s", want, first)
		}
	}
}

func TestTurnFollowsTheConversation(t *testing.T) {
	_, url := serve(t)
	body := `{"model":"m",` + bashTool + `,"messages":[
		{"role":"user","content":[{"type":"text","text":"go [[script:sub]]"}]},
		{"role":"assistant","content":[{"type":"tool_use"}]},
		{"role":"user","content":[{"type":"tool_result","content":"[[script:hello]] inside a result is no prompt"}]}]}`
	b, _ := io.ReadAll(post(t, url, "/v1/messages", body).Body)
	if !strings.Contains(string(b), "The helper is done.") {
		t.Errorf("second turn: %s", b)
	}
}

// The pieces of a stream, put together, are the whole answer.
func TestStreamAddsUp(t *testing.T) {
	_, url := serve(t)
	for name := range scripts {
		if name == "slowtext" || name == "err" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			ask := func(stream string) io.Reader {
				return post(t, url, "/v1/messages", `{"model":"m","stream":`+stream+`,`+bashTool+
					`,"messages":[{"role":"user","content":"[[script:`+name+`]]"}]}`).Body
			}
			var whole struct {
				Content []struct {
					Text  string
					Name  string
					Input map[string]any
				}
			}
			if err := json.NewDecoder(ask("false")).Decode(&whole); err != nil {
				t.Fatal(err)
			}
			got := make([]string, len(whole.Content))
			var order []string
			sc := bufio.NewScanner(ask("true"))
			for sc.Scan() {
				data, ok := strings.CutPrefix(sc.Text(), "data: ")
				if !ok {
					continue
				}
				var p struct {
					Type  string
					Index int
					Delta struct {
						Text    string
						Partial string `json:"partial_json"`
					}
				}
				if err := json.Unmarshal([]byte(data), &p); err != nil {
					t.Fatal(err)
				}
				order = append(order, p.Type)
				if p.Type == "content_block_delta" {
					got[p.Index] += p.Delta.Text + p.Delta.Partial
				}
			}
			if order[0] != "message_start" || order[len(order)-1] != "message_stop" {
				t.Errorf("order: %v", order)
			}
			for i, c := range whole.Content {
				want := c.Text
				if c.Name != "" {
					b, _ := json.Marshal(c.Input)
					want = string(b)
				}
				if got[i] != want {
					t.Errorf("block %d: %q, want %q", i, got[i], want)
				}
			}
		})
	}
}

func TestErrorAndUnknownPath(t *testing.T) {
	_, url := serve(t)
	r := post(t, url, "/v1/messages", `{`+bashTool+`,"messages":[{"role":"user","content":"[[script:err]]"}]}`)
	if r.StatusCode != 400 || r.Header.Get("x-should-retry") != "false" {
		t.Errorf("err script: %d, retry %q", r.StatusCode, r.Header.Get("x-should-retry"))
	}
	if r := post(t, url, "/v1/nothing", `{}`); r.StatusCode != 404 {
		t.Errorf("unknown path: %d", r.StatusCode)
	}
}

// A client that leaves in the middle of a slow answer is noticed.
func TestBrokenStreamIsNoticed(t *testing.T) {
	s, url := serve(t)
	r := post(t, url, "/v1/messages", `{"stream":true,`+bashTool+`,"messages":[{"role":"user","content":"[[script:slowtext]]"}]}`)
	if _, err := io.ReadFull(r.Body, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	deadline := time.After(10 * time.Second)
	for {
		heard, changed := s.Heard()
		if heard[0].Broken {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatal("the server did not notice")
		}
	}
}

func TestEcho(t *testing.T) {
	_, url := serve(t)
	b, _ := io.ReadAll(post(t, url, "/v1/messages",
		`{`+bashTool+`,"messages":[{"role":"user","content":"[[script:safe]] [[echo:the canary]]"}]}`).Body)
	if !strings.Contains(string(b), "the canary") {
		t.Errorf("no echo: %s", b)
	}
}
