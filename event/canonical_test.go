package event

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
)

func TestAppendCanonical(t *testing.T) {
	tests := []struct {
		name string
		in   any
		want string // "" is an error
	}{
		{"null", nil, "null"},
		{"bools", []any{true, false}, "[true,false]"},
		{"empty", []any{map[string]any{}, []any{}, ""}, `[{},[],""]`},
		{"html is not escaped", "<a href='x'>&</a>", `"<a href='x'>&</a>"`},
		{"escapes", "\"\\/\b\f\n\r\t\x00\x1f\x7f\u2028", `"\"\\/\b\f\n\r\t\u0000\u001f` + "\x7f\u2028" + `"`},
		{"unicode stays", "é€😀", `"é€😀"`},
		{"names in order", map[string]any{"b": 1, "a": 2, "": 3, "aa": 4, "B": 5}, `{"":3,"B":5,"a":2,"aa":4,"b":1}`},
		// RFC 8785 §3.2.3
		{"names by UTF-16", map[string]any{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
			"1": "One", "\U0001f600": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"},
			`{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`},
		{"spelt numbers", []any{json.Number("1.0"), json.Number("-0"), json.Number("1E2"), json.Number("0.10"), json.Number("1e-7"), json.Number("1e21"), json.Number("9007199254740993")},
			"[1,0,100,0.1,1e-7,1e+21,9007199254740992]"},
		{"go numbers", []any{1, int64(math.MaxInt64), -5, 0.5, 1e300, float64(1 << 60), uint8(7), float32(0.5)}, "[1,9223372036854776000,-5,0.5,1e+300,1152921504606847000,7,0.5]"},
		{"raw", json.RawMessage(` {"b": 1.0, "a": [ ] } `), `{"a":[],"b":1}`},
		{"nil raw", json.RawMessage(nil), "null"},
		{"other go values", map[string]any{"a": []string{"x<"}, "b": struct {
			Z int `json:"z"`
			A int `json:"a"`
		}{1, 2}}, `{"a":["x<"],"b":{"a":2,"z":1}}`},
		{"infinite spelling", json.Number("1e999"), ""},
		{"infinity", math.Inf(1), ""},
		{"NaN", math.NaN(), ""},
		{"not utf-8", "a\xff", ""},
		{"name not utf-8", map[string]any{"a\xff": 1}, ""},
		{"bad raw", json.RawMessage(`{"a":1,"a":2}`), ""},
		{"no JSON value", func() {}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := AppendCanonical([]byte("before "), tt.in)
			if tt.want == "" {
				if err == nil || string(got) != "before " {
					t.Fatalf("got %q, %v; want an error and nothing written", got, err)
				}
				if d := Digest(tt.in); len(d) != 32 {
					t.Errorf("Digest = %q, want 32 digits all the same", d)
				}
				return
			}
			if err != nil || string(got) != "before "+tt.want {
				t.Fatalf("got  %s, %v\nwant before %s", got, err, tt.want)
			}
			sum := sha256.Sum256([]byte(tt.want))
			if d := Digest(tt.in); d != hex.EncodeToString(sum[:16]) {
				t.Errorf("Digest = %s, want that of %s", d, tt.want)
			}
		})
	}
}

// The table of RFC 8785 appendix B: a double's bits and its text.
func TestCanonicalNumbers(t *testing.T) {
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0", 0x8000000000000000: "0",
		0x0000000000000001: "5e-324", 0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308", 0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992", 0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000", 0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23", 0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000", 0x444b1ae4d6e2ef4f: "999999999999999900000",
		0x444b1ae4d6e2ef50: "1e+21", 0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001", 0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555554: "333333333.33333325", 0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334", 0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333", 0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		f := math.Float64frombits(bits)
		for _, v := range []any{f, json.Number(strconv.FormatFloat(f, 'g', -1, 64))} {
			if got, err := AppendCanonical(nil, v); err != nil || string(got) != want {
				t.Errorf("%016x as %T: got %s, %v; want %s", bits, v, got, err, want)
			}
		}
	}
}

func TestCompareUTF16(t *testing.T) {
	alphabet := []rune{'a', 'b', 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xfb33, 0xffff, 0x10000, 0x1f600, 0x10ffff}
	r := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		w := make([]rune, r.IntN(4))
		for i := range w {
			w[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(w)
	}
	less := func(a, b string) bool {
		x, y := utf16.Encode([]rune(a)), utf16.Encode([]rune(b))
		for i := range min(len(x), len(y)) {
			if x[i] != y[i] {
				return x[i] < y[i]
			}
		}
		return len(x) < len(y)
	}
	for range 20_000 {
		a, b := word(), word()
		if got := compareUTF16(a, b) < 0; got != less(a, b) {
			t.Fatalf("%+q < %+q is %v", a, b, got)
		}
	}
}

func TestAppendValue(t *testing.T) {
	in := map[string]any{"n": json.Number("1.50"), "b": []any{1, int64(-2), 0.5, nil, true}, "a": "<é>", "bad": "x\xffy", "inf": math.Inf(-1), "raw": json.RawMessage(`{"z":1.0,"y":2}`)}
	want := `{"a":"<é>","b":[1,-2,0.5,null,true],"bad":"x` + "\ufffd" + `y","inf":null,"n":1.50,"raw":{"y":2,"z":1.0}}`
	if got := string(AppendValue(nil, in)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A digest of a text that is handed to the hash in pieces is the digest of the
// whole.
func TestDigestInPieces(t *testing.T) {
	for _, v := range []any{
		strings.Repeat("é", 3*flushAt),
		strings.Repeat("a€", 3*flushAt),
		strings.Repeat("😀", flushAt),
		strings.Repeat("\x01", flushAt+1),
		[]any{strings.Repeat("x", flushAt), map[string]any{strings.Repeat("n", flushAt): strings.Repeat("y", flushAt-3)}},
	} {
		whole, err := AppendCanonical(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(whole)
		if got, want := Digest(v), hex.EncodeToString(sum[:16]); got != want {
			t.Errorf("%.20s…: %s, want %s", whole, got, want)
		}
	}
}

// Digests that other implementations of the protocol gave.
func TestDigestPinned(t *testing.T) {
	for in, want := range map[string]string{
		`{"command":"ls -la"}`: "1df8bccaec747dc615b50678f35bf5b5",
		`{"kind":"ExecuteBashAction","command":"ls -la","is_input":false}`:             "851ef98f60afdca5f6e7387f924ba813",
		`"{\"command\":\"ls -la\",\"is_input\":false,\"kind\":\"ExecuteBashAction\"}"`: "70e036c50202ba673adbe1c505e33e3f",
	} {
		v, err := ParseJSON([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if got := Digest(v); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestDigestAllocs(t *testing.T) {
	v, err := ParseJSON([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	// One writer, not the pool's: under the race detector a pool drops some of
	// what it is given.
	w := newDigester()
	if n := testing.AllocsPerRun(100, func() { w.digest(v) }); n != 1 {
		t.Errorf("%v allocations, want the result's own", n)
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{`{"b":[1,2.50,-0],"a":"é\ud83d\ude00\u2028","😀":1,"` + "\ufb33" + `":2}`, `1e400`, `[1e-7,1e21,123456789012345678]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := ParseJSON(raw)
		if err != nil {
			return
		}
		once, err := AppendCanonical(nil, v)
		if err != nil {
			if !strings.Contains(err.Error(), "is no double") {
				t.Fatal(err)
			}
			return
		}
		again, err := ParseJSON(once)
		if err != nil {
			t.Fatalf("%s is not JSON: %v", once, err)
		}
		twice, err := AppendCanonical(nil, again)
		if err != nil || string(twice) != string(once) {
			t.Fatalf("canonical form of a canonical form: %s, %v; want %s", twice, err, once)
		}
		if Digest(again) != Digest(v) {
			t.Fatal("digests differ")
		}
		// Nothing but numbers' spelling and names' order may change.
		var a, b any
		if json.Unmarshal(raw, &a) != nil || json.Unmarshal(once, &b) != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%s became %s", raw, once)
		}
	})
}

// payload is a hook's payload of about 500 bytes, as runtimes send them.
const payload = `{"session_id":"7f3a9c1e-52d4-4b7e-9a1f-0c2b6d8e4f10","transcript_path":"/home/u/.claude/projects/-work-app/7f3a9c1e-52d4-4b7e-9a1f-0c2b6d8e4f10.jsonl","cwd":"/work/app","permission_mode":"default","hook_event_name":"PostToolUse","tool_name":"Bash","tool_input":{"command":"go test ./... 2>&1 | tail -20","description":"Run the tests","timeout":120000},"tool_response":{"stdout":"ok  \taep-wrap/event\t0.41s","stderr":"","interrupted":false,"isImage":false},"tool_use_id":"toolu_01GqU9bZ8n4yWcX5hQ2vR7tK"}`

func BenchmarkParseJSON(b *testing.B) {
	b.Run("hook", func(b *testing.B) {
		b.SetBytes(int64(len(payload)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseJSON([]byte(payload)); err != nil {
				b.Fatal(err)
			}
		}
	})
	big := []byte("[" + strings.TrimSuffix(strings.Repeat(payload+",", 2000), ",") + "]")
	b.Run("1MB", func(b *testing.B) {
		b.SetBytes(int64(len(big)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseJSON(big); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDigest(b *testing.B) {
	v, err := ParseJSON([]byte(payload))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		Digest(v)
	}
}
