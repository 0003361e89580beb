package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"aep-wrap/event/eventtest"
)

func TestParseJSON(t *testing.T) {
	tests := []struct {
		name, in string
		want     any
		fault    Fault
		offset   int
	}{
		{name: "null", in: "null"},
		{name: "true with space", in: " \t\r\ntrue ", want: true},
		{name: "false", in: "false", want: false},
		{name: "number keeps its spelling", in: "-0.10E+02", want: json.Number("-0.10E+02")},
		{name: "zero", in: "0", want: json.Number("0")},
		{name: "big integer", in: "123456789012345678901234567890", want: json.Number("123456789012345678901234567890")},
		{name: "beyond a double", in: "1e999", want: json.Number("1e999")},
		{name: "empty string", in: `""`, want: ""},
		{name: "escapes", in: `"\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC"`, want: "\"\\/\b\f\n\r\tAé€"},
		{name: "surrogate pair", in: `"\ud83d\ude00"`, want: "😀"},
		{name: "lone high surrogate", in: `"a\ud83d"`, want: "a\ufffd"},
		{name: "lone high before text", in: `"\ud83dxyzzyx"`, want: "\ufffdxyzzyx"},
		{name: "lone low surrogate", in: `"\ude00b"`, want: "\ufffdb"},
		{name: "two high surrogates, then a low one", in: `"\ud83d\ud83d\ude00"`, want: "\ufffd😀"},
		{name: "high before another escape", in: `"\ud83d\u0041"`, want: "\ufffdA"},
		{name: "raw utf-8", in: `"é€😀"`, want: "é€😀"},
		{name: "empty array", in: "[ ]", want: []any{}},
		{name: "array", in: `[1, "a", [null], {}]`, want: []any{json.Number("1"), "a", []any{nil}, map[string]any{}}},
		{name: "object", in: `{ "a" : {"b":[true]} , "c":"d"}`, want: map[string]any{"a": map[string]any{"b": []any{true}}, "c": "d"}},
		{name: "same name in other objects", in: `{"a":{"a":1},"b":[{"a":2},{"a":3}]}`,
			want: map[string]any{"a": map[string]any{"a": json.Number("1")}, "b": []any{map[string]any{"a": json.Number("2")}, map[string]any{"a": json.Number("3")}}}},

		{name: "empty", in: "", fault: FaultSyntax},
		{name: "only space", in: "  ", fault: FaultSyntax, offset: 2},
		{name: "two values", in: `{} {}`, fault: FaultSyntax, offset: 3},
		{name: "trailing garbage", in: `1x`, fault: FaultSyntax, offset: 1},
		{name: "truncated object", in: `{"a":1`, fault: FaultSyntax, offset: 6},
		{name: "truncated string", in: `{"a":"x`, fault: FaultSyntax, offset: 7},
		{name: "truncated escape", in: `"\`, fault: FaultSyntax, offset: 2},
		{name: "truncated unicode escape", in: `"\u00`, fault: FaultSyntax, offset: 5},
		{name: "bad unicode escape", in: `"\u00g0"`, fault: FaultSyntax, offset: 1},
		{name: "unknown escape", in: `"\x41"`, fault: FaultSyntax, offset: 1},
		{name: "control character", in: "\"a\nb\"", fault: FaultSyntax, offset: 2},
		{name: "trailing comma in object", in: `{"a":1,}`, fault: FaultSyntax, offset: 7},
		{name: "trailing comma in array", in: `[1,]`, fault: FaultSyntax, offset: 3},
		{name: "leading comma", in: `{,"a":1}`, fault: FaultSyntax, offset: 1},
		{name: "no colon", in: `{"a" 1}`, fault: FaultSyntax, offset: 5},
		{name: "name is no string", in: `{1:1}`, fault: FaultSyntax, offset: 1},
		{name: "leading zero", in: "01", fault: FaultSyntax, offset: 1},
		{name: "plus sign", in: "+1", fault: FaultSyntax},
		{name: "bare minus", in: "-", fault: FaultSyntax, offset: 1},
		{name: "no digit after the point", in: "1.", fault: FaultSyntax, offset: 2},
		{name: "no digit in the exponent", in: "1e+", fault: FaultSyntax, offset: 3},
		{name: "NaN", in: "NaN", fault: FaultSyntax},
		{name: "wrong literal", in: "nul", fault: FaultSyntax},
		{name: "literal goes on", in: "truex", fault: FaultSyntax, offset: 4},
		{name: "comment", in: "/* */1", fault: FaultSyntax},
		{name: "byte order mark", in: "\xef\xbb\xbf{}", fault: FaultSyntax},
		{name: "NUL", in: "\x00", fault: FaultSyntax},
		{name: "duplicate", in: `{"a":1,"b":2,"a":3}`, fault: FaultDuplicate, offset: 13},
		{name: "duplicate by escape", in: `{"ab":1,"a\u0062":2}`, fault: FaultDuplicate, offset: 8},
		{name: "nested duplicate", in: `{"a":[{"b":1,"b":1}]}`, fault: FaultDuplicate, offset: 13},
		{name: "not utf-8", in: "\"a\xff\"", fault: FaultUTF8, offset: 2},
		{name: "not utf-8 in a name", in: "{\"\xc3\":1}", fault: FaultUTF8, offset: 2},
		{name: "surrogate in raw bytes", in: "\"\xed\xa0\x80\"", fault: FaultUTF8, offset: 1},
		{name: "overlong", in: "\"é\xc0\x80\"", fault: FaultUTF8, offset: 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// The same text as it is, and in the form of a big one, whose
			// strings are copied one by one.
			for _, pad := range []int{0, sharedLimit} {
				in := append([]byte(tt.in), bytes.Repeat([]byte(" "), pad)...)
				got, err := ParseJSON(in)
				s := scanner{b: in}
				skipped := s.skip(0) && s.end()
				if tt.fault != "" {
					var se *SyntaxError
					if !errors.As(err, &se) {
						t.Fatalf("ParseJSON = %v, %v; want a %s error", got, err, tt.fault)
					}
					if pad == 0 && (se.Fault != tt.fault || se.Offset != tt.offset) {
						t.Errorf("error %q, want %s at %d", se, tt.fault, tt.offset)
					}
					if skipped || *s.err != *se {
						t.Errorf("skip: %v, %v; want the same as ParseJSON: %v", skipped, s.err, se)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, tt.want) {
					t.Errorf("got %#v, want %#v", got, tt.want)
				}
				if !skipped {
					t.Errorf("skip refuses it: %v", s.err)
				}
				for i := range in {
					in[i] = 'X'
				}
				if !reflect.DeepEqual(got, tt.want) {
					t.Error("the tree aliases its text")
				}
			}
		})
	}
}

func TestParseObject(t *testing.T) {
	if m, err := ParseObject([]byte(`{"a":1}`)); err != nil || m["a"] != json.Number("1") {
		t.Errorf("got %v, %v", m, err)
	}
	for _, in := range []string{"[]", "null", `"{}"`, "", "{"} {
		var se *SyntaxError
		if m, err := ParseObject([]byte(in)); !errors.As(err, &se) {
			t.Errorf("%q: got %v, %v; want a *SyntaxError", in, m, err)
		}
	}
}

func TestParseJSONDepth(t *testing.T) {
	for _, open := range []string{"[", `{"a":`} {
		shut := map[string]string{"[": "]", `{"a":`: "}"}[open]
		deep := func(n int) []byte {
			return []byte(strings.Repeat(open, n-1) + strings.TrimSuffix(open, `"a":`) + strings.Repeat(shut, n))
		}
		if _, err := ParseJSON(deep(MaxDepth)); err != nil {
			t.Errorf("depth %d is refused: %v", MaxDepth, err)
		}
		for _, n := range []int{MaxDepth + 1, 1_000_000} {
			_, err := ParseJSON(deep(n))
			var se *SyntaxError
			if !errors.As(err, &se) || se.Fault != FaultDepth {
				t.Errorf("depth %d: %v, want a depth error", n, err)
			}
			s := scanner{b: deep(n)}
			if s.skip(0) || s.err.Fault != FaultDepth {
				t.Errorf("depth %d: skip says %v, want a depth error", n, s.err)
			}
		}
	}
}

// A hostile payload must cost time in proportion to its size: 64 times the
// size may not take more than 512 times as long. Where cost grew with the
// square it would take 4096 times.
func TestParseJSONLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	shapes := map[string]func(n int) []byte{
		"one string": func(n int) []byte { return []byte(`"` + strings.Repeat("é\\n", n/4) + `"`) },
		"many names": func(n int) []byte {
			var b bytes.Buffer
			b.WriteString(`{"":0`)
			for i := 0; b.Len() < n; i++ {
				b.WriteString(`,"k` + string(AppendValue(nil, i)) + `":1`)
			}
			b.WriteString("}")
			return b.Bytes()
		},
		"many objects": func(n int) []byte {
			return []byte("[" + strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"x"},`, n/30), ",") + "]")
		},
		"lone surrogates": func(n int) []byte { return []byte(`"` + strings.Repeat(`\ud83d`, n/6) + `"`) },
		"unclosed":        func(n int) []byte { return []byte(`{"a":"` + strings.Repeat(`\"`, n/2)) },
	}
	const small, times = 64 << 10, 64
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			cost := func(raw []byte) time.Duration {
				best := time.Hour
				for range 3 {
					best = min(best, eventtest.CPU(t, func() {
						if v, err := ParseJSON(raw); err == nil {
							Digest(v)
						}
					}))
				}
				return best
			}
			// A busy machine's caches may be cold once, not each time.
			for try := 1; ; try++ {
				a, b := cost(shape(small)), cost(shape(times*small))
				t.Logf("%d KB %v, %d KB %v", small>>10, a, times*small>>10, b)
				if b <= 8*times*max(a, time.Millisecond/4) {
					break
				}
				if try == 4 {
					t.Errorf("%d times the size took %v instead of %v", times, b, a)
					break
				}
			}
		})
	}
}

func TestSyntaxErrorQuotesNothing(t *testing.T) {
	for _, in := range []string{`{"hunter2":1,"hunter2":2}`, `{"a":"hunter2`, "{\"hunter2\":\"\xff\"}", `["hunter2" "hunter2"]`} {
		if _, err := ParseJSON([]byte(in)); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestOneLine(t *testing.T) {
	in := []byte("{\r\n  \"a\": \"b\\n\",\n  \"c\": [\n1\n]\n}\n")
	got := OneLine(in)
	if bytes.ContainsAny(got, "\r\n") {
		t.Errorf("%q has a line break", got)
	}
	a, err1 := ParseJSON(in)
	b, err2 := ParseJSON(got)
	if err1 != nil || err2 != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%v (%v) became %v (%v)", a, err1, b, err2)
	}
}

func FuzzParseJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e3,"é\ud83d\ude00\ud800",true,null]}`, `{"a":1,"\u0061":2}`, "[[[", `"\u12`, "\"\xff\"", " 1 2"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := ParseJSON(raw)
		s := scanner{b: raw}
		if skipped := s.skip(0) && s.end(); skipped != (err == nil) {
			t.Fatalf("ParseJSON says %v, skip says %v (%v)", err, skipped, s.err)
		}
		if err != nil {
			if json.Valid(raw) && utf8.Valid(raw) {
				var se *SyntaxError
				if errors.As(err, &se); se.Fault == FaultSyntax {
					t.Fatalf("valid JSON is refused: %v", err)
				}
			}
			return
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var want any
		if err := d.Decode(&want); err != nil {
			t.Fatalf("encoding/json refuses it: %v", err)
		}
		if !reflect.DeepEqual(v, want) {
			t.Fatalf("got %#v, encoding/json gives %#v", v, want)
		}
		again, err := ParseJSON(AppendValue(nil, v))
		if err != nil || !reflect.DeepEqual(again, v) {
			t.Fatalf("written and read again: %#v, %v", again, err)
		}
	})
}
