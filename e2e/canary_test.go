package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"aep-wrap/event/eventtest"
)

// The canaries: a credential of a well-known shape, the value of a variable
// whose name says that it is secret, and plain words.
const (
	canaryKey   = "ghp_C4n4ryC4n4ryC4n4ryC4n4ryC4n4ryC4n4ry"
	canaryEnv   = "canary-of-the-environment-91b2"
	canaryWords = "purple canary sings at midnight"
)

// Whatever an agent is told, does, gets back and has in its environment, a
// secret is in no log and in no request at any level below full, and at
// metadata nothing of the text is.
func TestCanaries(t *testing.T) {
	agent := claude(t)
	for _, c := range []struct {
		capture string
		args    []string
		words   bool // plain words may be told
	}{
		{"metadata", nil, false},
		{"redacted", []string{"--capture", "redacted"}, true},
	} {
		for _, script := range []string{"fail", "safe"} {
			t.Run(c.capture+"/"+script, func(t *testing.T) {
				w := newWorld(t)
				sink := newSink(t)
				w.env = []string{"MY_SERVICE_TOKEN=" + canaryEnv}
				argv := append([]string{wrapper(t), "--collector", sink.url, "--token", "t"}, c.args...)
				if c.capture == "metadata" {
					argv = append(argv, "--capture-for", "attention=metadata")
				}
				argv = append(argv, "--", agent, "-p", "--session-id", sessionID, "--allowedTools", "Bash", "--",
					"go [[script:"+script+"]] [[echo:"+canaryKey+" "+canaryEnv+" "+canaryWords+"]]")
				r := w.run(argv...)
				if r.code != 0 || !strings.Contains(r.stdout, canaryWords) {
					t.Fatalf("the run did not do its work: %+v", r)
				}
				// The canary was there to be caught: the agent's own log has it.
				own := strings.Join(values(w.snapshot()), "\n")
				for _, s := range []string{canaryKey, canaryEnv, canaryWords} {
					if strings.Count(own, s) < 3 {
						t.Fatalf("%q did not go through the agent", s)
					}
				}
				w.events() // complete and valid
				log, err := os.ReadFile(w.logFiles()[0])
				if err != nil {
					t.Fatal(err)
				}
				posted := sink.body()
				if strings.Count(posted, "\n") < strings.Count(string(log), "\n") {
					t.Errorf("the collector got %d lines of %d", strings.Count(posted, "\n"), strings.Count(string(log), "\n"))
				}
				for where, text := range map[string]string{"log": string(log), "posted": posted, "kept files": everything(t, w.logs())} {
					for _, s := range []string{canaryKey, canaryEnv} {
						if strings.Contains(text, s) {
							t.Errorf("%s holds the secret %s", where, s)
						}
					}
					if got := strings.Contains(text, canaryWords); got != c.words {
						t.Errorf("%s holds plain words: %v, want %v", where, got, c.words)
					}
				}
			})
		}
	}
}

// everything is the content of all files below a directory.
func everything(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		c, err := os.ReadFile(path)
		b.Write(c)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func values(m map[string]string) []string {
	var out []string
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// sink is a collector that takes everything and keeps what it was sent.
type sink struct {
	url string
	mu  sync.Mutex
	got strings.Builder
}

func newSink(t *testing.T) *sink {
	s := &sink{}
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPost {
			s.mu.Lock()
			s.got.Write(b)
			if len(b) > 0 && b[len(b)-1] != '\n' {
				s.got.WriteByte('\n')
			}
			s.mu.Unlock()
		}
		rw.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

func (s *sink) body() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

// A session told to the embedded collector can be read from its stream, to the
// byte as the log has it.
func TestCollectorHasWhatTheLogHas(t *testing.T) {
	agent := claude(t)
	w := newWorld(t)
	addr := eventtest.Address(t)
	collect := exec.Command(wrapper(t), "collect", "--listen", addr, "--token", "t")
	collect.Env = w.environ()
	if err := collect.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = collect.Process.Signal(syscall.SIGTERM)
		_ = collect.Wait()
	})
	get := func(path string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
		if err != nil {
			return "", err
		}
		req.Header.Set("Authorization", "Bearer t")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	waitFor(t, "the collector answers", func() bool {
		_, err := get("/healthz")
		return err == nil
	})
	r := w.run(wrapper(t), "--collector", "http://"+addr, "--token", "t", "--", agent,
		"-p", "--session-id", sessionID, "go [[script:safe]]")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	stream, err := get("/stream?from=all&live=0")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for line := range strings.SplitSeq(stream, "\n") {
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			told = append(told, d)
		}
	}
	w.events()
	log, err := os.ReadFile(w.logFiles()[0])
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(told, "\n")+"\n", string(log); got != want {
		t.Errorf("the stream differs from the log:\n%s\nlog:\n%s", got, want)
	}
}
