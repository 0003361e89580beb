package event

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func validate(t *testing.T, r io.Reader) []string {
	t.Helper()
	var got []string
	if err := ValidateReader(r, func(line int, v Violation) { got = append(got, fmt.Sprint(line, " ", v.Rule)) }); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestValidateReader(t *testing.T) {
	a, b := ev("a", "progress.status", 0, 1), ev("b", "progress.status", 0, 0)
	line1, line0 := string(a.AppendJSON(nil)), string(b.AppendJSON(nil))
	future := strings.Replace(line1, `"aep":"0.1"`, `"aep":"1.0"`, 1)
	tests := []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"legal", line1 + "\n", nil},
		{"no last break", line1, nil},
		{"carriage return", line1 + "\r\n", nil},
		{"blank lines", "\n" + line1 + "\n \n\n", []string{"1 blank-line", "3 blank-line", "4 blank-line"}},
		{"broken, legal, torn", "{\n" + line1 + "\n" + line1[:40], []string{"1 json", "3 json"}},
		{"byte order mark", "\xef\xbb\xbf" + line1, []string{"1 json"}},
		{"two on a line", line1 + line0, []string{"1 json"}},
		{"stream", line1 + "\n" + line0 + "\n" + line1 + "\n", []string{"2 position"}},
		{"several in a line", strings.Replace(line1, `"capture":"redacted"`, `"capture":"metadata","data":{"message":"x","percent":101}`, 1), []string{"1 capture", "1 payload"}},
		{"another minor version", strings.Replace(line1, `"aep":"0.1"`, `"aep":"0.2"`, 1), []string{"1 version"}},
		{"another major version", future + "\n" + line1 + "\n" + future + "\n" + strings.Replace(future, "1.0", "2.0", 1) + "\n" + future, []string{"1 major-version", "4 major-version"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := validate(t, strings.NewReader(tt.in)); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			if got := validate(t, iotest.OneByteReader(strings.NewReader(tt.in))); !slices.Equal(got, tt.want) {
				t.Errorf("byte by byte: found %q, want %q", got, tt.want)
			}
		})
	}
	boom := errors.New("boom")
	if err := ValidateReader(io.MultiReader(strings.NewReader(line1+"\n"), iotest.ErrReader(boom)), func(int, Violation) {}); !errors.Is(err, boom) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a reader's error: %v", err)
	}
}

// zeros reads as n spaces' worth of a long line.
type repeated struct {
	b byte
	n int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.n == 0 {
		return 0, io.EOF
	}
	n := min(len(p), r.n)
	r.n -= n
	copy(p, bytes.Repeat([]byte{r.b}, n))
	return n, nil
}

func TestValidateLongLines(t *testing.T) {
	e := ev("a", "progress.status", 0, 1, data(`{"message":"`+strings.Repeat("x", 2<<20)+`"}`))
	long := e.AppendJSON(nil)
	if got := validate(t, bytes.NewReader(append(long, '\n'))); got != nil {
		t.Errorf("a line of %d bytes: %q", len(long), got)
	}
	if testing.Short() {
		t.Skip("reads 256 MB")
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	got := validate(t, io.MultiReader(&repeated{'x', 4 * MaxLine}, strings.NewReader("\n{}\n")))
	runtime.ReadMemStats(&after)
	if want := []string{"1 line-too-long", "2 required"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 5*MaxLine {
		t.Errorf("a line of %d MB took %d MB", 4*MaxLine>>20, grown>>20)
	}
}

func BenchmarkValidateReader(b *testing.B) {
	var in bytes.Buffer
	for i := range 10_000 {
		e := ev(fmt.Sprint(i), "tool.completed", 0, int64(i), data(`{"tool":{"name":"Bash","call_id":"t_91"},"status":"success","duration_ms":1240}`))
		in.Write(append(e.AppendJSON(nil), '\n'))
	}
	b.SetBytes(int64(in.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if err := ValidateReader(bytes.NewReader(in.Bytes()), func(line int, v Violation) { b.Fatal(line, v) }); err != nil {
			b.Fatal(err)
		}
	}
}
