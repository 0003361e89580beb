package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Events are there for a day and more, over restarts, and then are told as
// gone.
func TestRetention(t *testing.T) {
	w := newWorld(t)
	run, j := w.run(w.agent(nil))
	j.turn(1)
	w.done(run, j)
	all := w.events(run, "")
	w.sleep(25 * time.Hour)
	w.close()
	w.open()
	if got := w.events(run, all[1].ID); len(got) != len(all)-2 {
		t.Errorf("a day later: %v", types(got))
	}
	w.sleep(DefaultKeep)
	if err := w.srv.prune(); err != nil {
		t.Fatal(err)
	}
	w.ses = ""
	w.ses = w.must("initialize", map[string]any{"requested_versions": []string{Version}})["session_id"].(string)
	if status := w.stream(run, all[1].ID, nil); status != 400 {
		t.Errorf("behind what is gone: %d", status)
	}
	if got := w.events(run, all[len(all)-1].ID); len(got) != 0 {
		t.Errorf("behind the last: %v", got)
	}
	if w.state(run) != Complete {
		t.Error("the run itself is gone")
	}
}

// Whatever comes is answered, by an answer of the protocol's, and the server
// lives.
func TestAbuse(t *testing.T) {
	w := newWorld(t)
	agent := w.agent(nil)
	run, j := w.run(agent)
	w.done(run, j)
	values := []string{`null`, `true`, `0`, `-1`, `1e400`, `1.5`, `""`, `"\u0000"`, `"../../etc/passwd"`, `"run_../x"`, `[]`, `[[]]`, `{}`, `{"a":{}}`,
		`"` + strings.Repeat("x", 100_000) + `"`, `"\ud800"`, `99999999999999999999999999`}
	members := []string{"agent_id", "run_id", "artifact_id", "subject_id", "goal", "name", "cursor", "limit", "toolset", "ceilings", "budgets",
		"constitution", "metadata", "runner", "subject_ids", "external_mcp_servers", "mode", "inputs", "requested_versions", "include"}
	for name := range methods {
		for i, v := range values {
			all := `"` + strings.Join(members, `":`+v+`,"`) + `":` + v
			for k, m := range append([]string{""}, members...) {
				params := all
				if m != "" {
					if params = fmt.Sprintf(`%q:%s`, m, v); (i+k)%4 != 0 {
						continue
					}
				}
				status, body := w.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s,"unknown":{"deep":[1]}}}`, name, params), nil)
				var r struct {
					Result json.RawMessage
					Error  *struct{ Code Code }
				}
				if err := json.Unmarshal([]byte(body), &r); err != nil || status >= 500 || (r.Error == nil) == (r.Result == nil) {
					t.Fatalf("%s %s=%.60s: %d %.200q", name, m, v, status, body)
				}
				if r.Error != nil && r.Error.Code == InternalError {
					t.Errorf("%s %s=%.60s: %.200q", name, m, v, body)
				}
			}
		}
	}
	for _, path := range []string{"/aep/v1/runs/..%2f..%2fx/events", "/aep/v1/runs/" + strings.Repeat("r", 3000) + "/events", "/aep/v1/runs/run_%00/events"} {
		if resp, _ := w.get(path, nil); resp.StatusCode != 404 {
			t.Errorf("%.60s: %d", path, resp.StatusCode)
		}
	}
	if resp, _ := w.get(rpcPath, nil); resp.StatusCode != 405 {
		t.Errorf("GET %s: %d", rpcPath, resp.StatusCode)
	}
}

// A thousand readers who wait cost a reader's share each, hear of the next
// event all, and end with the run.
func TestIdleStreams(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 100
	}
	w := newWorld(t)
	run, j := w.run(w.agent(nil))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var open, done sync.WaitGroup
	got := make([]int, n)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
	for i := range n {
		open.Add(1)
		done.Go(func() {
			once := sync.OnceFunc(open.Done)
			defer once()
			req, _ := http.NewRequestWithContext(ctx, "GET", w.http.URL+"/aep/v1/runs/"+run+"/events", nil)
			req.Header = w.headers(nil)
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			once()
			buf := make([]byte, 4096)
			for {
				k, err := resp.Body.Read(buf)
				got[i] += strings.Count(string(buf[:k]), "data: ")
				if err != nil {
					return
				}
			}
		})
	}
	open.Wait()
	j.turn(1)
	w.done(run, j)
	done.Wait()
	for i, k := range got {
		if k != 6 {
			t.Fatalf("reader %d has %d events", i, k)
		}
	}
	client.CloseIdleConnections()
}
