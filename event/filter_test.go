package event

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestFilter(t *testing.T) {
	whole := wholeEvent()
	if err := whole.SetExt("acmeflag", true); err != nil {
		t.Fatal(err)
	}
	if err := whole.SetExt("acmebig", json.Number("123456789012345678901234567890")); err != nil {
		t.Fatal(err)
	}
	bare := Header{Type: "agent.idle"}
	tests := []struct {
		filter string
		whole  bool
		bare   bool
	}{
		{`{}`, true, true},
		{`{"id":"01J"}`, true, false},
		{`{"id":["x","01J"]}`, true, false},
		{`{"subject":"Bash","source":"aep://host-a/agent/claude-code/session/s_8f2c","agent":"claude-code","session":"s_8f2c","run":"r_0042","step":"turn-3","cause":"01H"}`, true, false},
		{`{"subject":"bash"}`, false, false},
		{`{"step":""}`, false, false},
		{`{"step":["","turn-3"]}`, true, false},
		{`{"agent":7}`, false, false},
		{`{"agent":[7,"claude-code",true]}`, true, false},
		{`{"type":"tool.completed"}`, true, false},
		{`{"type":"tool.*"}`, true, false},
		{`{"type":"tool.completed.*"}`, false, false},
		{`{"type":"too.*"}`, false, false},
		{`{"type":["agent.*","tool.failed"]}`, false, true},
		{`{"type":"tool"}`, false, false},
		{`{"type":7}`, false, false},
		{`{"severity":"notice"}`, true, false},
		{`{"severity":["info","debug"]}`, false, true},
		{`{"severity":"fatal"}`, false, false},
		{`{"severity":{"gte":"notice"}}`, true, false},
		{`{"severity":{"lte":"info"}}`, false, true},
		{`{"severity":{"gte":"error","lte":"info"}}`, false, false},
		{`{"capture":"redacted"}`, true, false},
		{`{"capture":["metadata","none"]}`, false, true},
		{`{"epoch":2}`, true, false},
		{`{"epoch":2.0}`, true, false},
		{`{"epoch":[0,7]}`, false, true},
		{`{"epoch":"2"}`, false, false},
		{`{"epoch":false}`, false, false},
		{`{"acmeregion":"eu-1"}`, true, false},
		{`{"acmecount":7}`, true, false},
		{`{"acmecount":7.0}`, true, false},
		{`{"acmecount":"7"}`, false, false},
		{`{"acmecount":[6,7,8]}`, true, false},
		{`{"acmeflag":true}`, true, false},
		{`{"acmeflag":1}`, false, false},
		{`{"acmebig":123456789012345678901234567890}`, true, false},
		{`{"acmebig":123456789012345678901234567891}`, false, false},
		{`{"acmenone":"x"}`, false, false},
		{`{"agent":["1","2","3","4","5","6","7","8","9","claude-code"]}`, true, false},
		{`{"type":["a.*","b.*","c.*","d.*","e.*","f.*","g.*","h.*","i.*","tool.*"]}`, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.filter, func(t *testing.T) {
			f, err := CompileFilter([]byte(tt.filter))
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Match(&whole.Header); got != tt.whole {
				t.Errorf("the whole event: %v, want %v", got, tt.whole)
			}
			if got := f.Match(&bare); got != tt.bare {
				t.Errorf("the bare event: %v, want %v", got, tt.bare)
			}
		})
	}
	if !(*Filter)(nil).Match(&bare) {
		t.Error("no filter matches nothing")
	}
}

func TestFilterFailsClosed(t *testing.T) {
	for _, filter := range []string{
		``, `null`, `[]`, `"x"`, `{"agent":"a"`, `{"agent":"a","agent":"b"}`, `{}{}`,
		`{"seq":1}`, `{"time":"x"}`, `{"aep":"0.1"}`, `{"traceparent":"x"}`, `{"data":"x"}`,
		`{"Agent":"x"}`, `{"":"x"}`, `{"acme_ext":"x"}`, `{"abcdefghijklmnopqrstu":"x"}`, `{"é":"x"}`,
		`{"agent":null}`, `{"agent":[]}`, `{"agent":{}}`, `{"agent":[["a"]]}`, `{"agent":[null]}`, `{"agent":["a",{}]}`, `{"agent":1.5}`, `{"agent":1e999}`,
		`{"agent":"a*"}`, `{"agent":["a","*"]}`, `{"acme":"a.*"}`, `{"severity":"*"}`, `{"capture":"*"}`, `{"epoch":"*"}`,
		`{"type":"*"}`, `{"type":".*"}`, `{"type":"tool*"}`, `{"type":"*.x"}`, `{"type":"a.*.b"}`, `{"type":"a.*.*"}`, `{"type":["tool.*","*"]}`, `{"type":{}}`, `{"type":{"gte":"info"}}`,
		`{"severity":{}}`, `{"severity":{"gt":"info"}}`, `{"severity":{"gte":"fatal"}}`, `{"severity":{"gte":3}}`, `{"severity":{"gte":"info","eq":"info"}}`, `{"severity":[{"gte":"info"}]}`, `{"severity":{"gte":["info"]}}`,
	} {
		if f, err := CompileFilter([]byte(filter)); err == nil || f != nil {
			t.Errorf("%s compiles", filter)
		}
	}
}

func TestFilterAllocs(t *testing.T) {
	f, err := CompileFilter([]byte(`{"type":["attention.*","tool.*"],"severity":{"gte":"notice"},"agent":["codex","claude-code"],"acmeregion":["eu-1","eu-2"],"epoch":2}`))
	if err != nil {
		t.Fatal(err)
	}
	h := &wholeEvent2
	if !f.Match(h) {
		t.Fatal("no match")
	}
	if n := testing.AllocsPerRun(100, func() { f.Match(h) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

var wholeEvent2 = wholeEvent().Header

func FuzzFilter(f *testing.F) {
	for _, seed := range []string{`{}`, `{"type":["a.*","b.c"],"severity":{"gte":"info"},"epoch":1,"acme":[true,"x",3]}`, `{"agent":"*"}`} {
		f.Add([]byte(seed))
	}
	h := wholeEvent().Header
	bare := Header{Type: "agent.idle"}
	f.Fuzz(func(t *testing.T, raw []byte) {
		filter, err := CompileFilter(raw)
		if (filter == nil) != (err != nil) {
			t.Fatalf("%v with %v", filter, err)
		}
		if err != nil {
			return
		}
		members, _ := ParseObject(raw)
		if got := filter.Match(&h) || filter.Match(&bare); got && len(members) == 0 != (len(filter.clauses) == 0) {
			t.Fatal("a predicate was dropped")
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("%q", fmt.Sprint("s_", i))
	}
	for name, filter := range map[string]string{
		"empty":         `{}`,
		"type":          `{"type":["attention.*","tool.*"]}`,
		"five":          `{"type":["attention.*","tool.*"],"severity":{"gte":"notice"},"agent":["codex","claude-code"],"acmeregion":["eu-1","eu-2"],"epoch":2}`,
		"1000 sessions": `{"session":["s_8f2c",` + strings.Join(names, ",") + `]}`,
	} {
		b.Run(name, func(b *testing.B) {
			f, err := CompileFilter([]byte(filter))
			if err != nil {
				b.Fatal(err)
			}
			h := wholeEvent().Header
			b.ReportAllocs()
			for b.Loop() {
				if !f.Match(&h) {
					b.Fatal("no match")
				}
			}
		})
	}
}
