package follow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func cutAll(pieces ...string) (out []string) {
	s := &splitter{}
	s.emit = func(r Record) {
		if r.Fault != "" {
			out = append(out, fmt.Sprintf("%s %d-%d", r.Fault, r.Start, r.End))
			return
		}
		out = append(out, string(r.Line))
	}
	for _, p := range pieces {
		s.feed([]byte(p))
	}
	if s.end() != s.off {
		out = append(out, "…")
	}
	return out
}

func TestRecordsAreCut(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"lines", "{\"a\":1}\n{\"b\":[2]}\n", []string{`{"a":1}`, `{"b":[2]}`}},
		{"no newline at the end", `{"a":1}`, []string{`{"a":1}`}},
		{"CRLF and blank lines", "{\"a\":1}\r\n\r\n \t{\"b\":2}\r\n", []string{`{"a":1}`, `{"b":2}`}},
		{"several on one line", `{"a":1}{"b":2} {"c":3}`, []string{`{"a":1}`, `{"b":2}`, `{"c":3}`}},
		{"brackets in strings", `{"a":"}{\"]\\"}` + "\n", []string{`{"a":"}{\"]\\"}`}},
		{"an array", "[1]\n", []string{"[1]"}},
		{"NULs between", "\x00\x00{\"a\":1}\n\x00\x00{\"b\":2}\n", []string{`{"a":1}`, `{"b":2}`}},
		{"NULs inside", "{\"a\":\"x\x00\x00\x00{\"b\":2}\n", []string{"torn 0-7", `{"b":2}`}},
		{"torn in a string", "{\"a\":\"x\n{\"b\":2}\n", []string{"torn 0-7", `{"b":2}`}},
		{"torn between members", "{\"a\":1,\n{\"b\":2}\n", []string{"torn 0-7", `{"b":2}`}},
		{"torn behind a backslash", "{\"a\":\"x\\\n{\"b\":2}\n", []string{"torn 0-8", `{"b":2}`}},
		{"not yet whole", `{"a":1}` + "\n" + `{"b":`, []string{`{"a":1}`, "…"}},
		{"text", "hello {\"a\":1}\n{\"b\":2}\n", []string{"not_json 0-13", `{"b":2}`}},
		{"a stray bracket", "}\n{\"b\":2}\n", []string{"not_json 0-1", `{"b":2}`}},
		{"a byte order mark", "\xef\xbb\xbf{\"a\":1}\n", []string{`{"a":1}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := cutAll(c.in); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("whole: got %q, want %q", got, c.want)
			}
			if got := cutAll(strings.Split(c.in, "")...); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("byte by byte: got %q, want %q", got, c.want)
			}
		})
	}
}

func TestLongStringsAreToldByTheirLength(t *testing.T) {
	long := strings.Repeat("x", 5<<20)
	got := cutAll(`{"a":"` + long + `","b":"` + long[:longString] + `"}`)
	if len(got) != 1 || !strings.HasPrefix(got[0], fmt.Sprintf(`{"a":"[%d bytes not read]","b":"xxx`, len(long))) {
		t.Fatalf("got %.200q", got)
	}
	var v map[string]string
	if err := json.Unmarshal([]byte(got[0]), &v); err != nil || len(v["b"]) != longString {
		t.Fatalf("the rest is not whole: %v", err)
	}
}

// A record of ever so many middling strings is kept to its bound, or told as
// too large; what comes after it is whole.
func TestARecordIsBounded(t *testing.T) {
	s := &splitter{}
	var got []Record
	most := 0
	s.emit = func(r Record) {
		most = max(most, len(r.Line))
		r.Line = nil
		got = append(got, r)
	}
	s.feed([]byte(`{"a":[`))
	piece := []byte(`"` + strings.Repeat("y", 60<<10) + `",`)
	for range 22 << 20 / len(piece) {
		s.feed(piece)
		most = max(most, cap(s.buf))
	}
	s.feed([]byte("0]}\n{\"a\":["))
	for range 3 << 20 {
		s.feed([]byte("1234,"))
	}
	s.feed([]byte("0]}\n{}\n"))
	if len(got) != 3 || got[0].Fault != "" || got[0].Cut == 0 || got[1].Fault != TooLarge || got[2].Fault != "" {
		t.Fatalf("got %+v", got)
	}
	if most > 2*maxRecord {
		t.Errorf("%d bytes were kept", most)
	}
}

// FuzzSplit holds that however a stream is cut into pieces, the records are
// the same; that they lie in order in the file; and that a record without long
// strings is the file's bytes.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"{\"a\":1}\n", "{}{}\r\n[1]", "{\"a\":\"\\\"}\n", "x\n{\"a\":\x00}\n", "{\"a\":\n{}\n", "\xef\xbb\xbf{}"} {
		f.Add([]byte(s), uint8(1))
		f.Add([]byte(s), uint8(7))
	}
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		run := func(step int) (out []Record) {
			s := &splitter{}
			s.emit = func(r Record) {
				r.Line = bytes.Clone(r.Line)
				out = append(out, r)
			}
			for i := 0; i < len(in); i += step {
				s.feed(in[i:min(i+step, len(in))])
			}
			if s.off != int64(len(in)) {
				t.Fatalf("%d of %d bytes were taken", s.off, len(in))
			}
			return out
		}
		whole, pieces := run(len(in)+1), run(int(step)+1)
		if len(whole) != len(pieces) {
			t.Fatalf("%d records, and %d in pieces", len(whole), len(pieces))
		}
		at := int64(0)
		for i, r := range whole {
			if p := pieces[i]; r.Start != p.Start || r.End != p.End || r.Fault != p.Fault || !bytes.Equal(r.Line, p.Line) {
				t.Fatalf("record %d: %+v, and %+v in pieces", i, r, p)
			}
			if r.Start < at || r.End < r.Start {
				t.Fatalf("record %d lies at %d-%d, after %d", i, r.Start, r.End, at)
			}
			at = r.End
			if r.Fault == "" && r.Cut == 0 && !bytes.Equal(r.Line, in[r.Start:r.End]) {
				t.Fatalf("record %d is not what the file holds", i)
			}
		}
	})
}
