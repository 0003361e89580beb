package agent

import "testing"

func TestParseStat(t *testing.T) {
	const rest = " S 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1 1 18446744073709551615\n"
	for _, c := range []struct {
		in   string
		want Proc
		ok   bool
	}{
		{"42 (cat)" + rest, Proc{Pid: 42, Parent: 7, Group: 8, Start: 123456, State: 'S'}, true},
		{"42 (a) R 1 (b)\n)" + rest, Proc{Pid: 42, Parent: 7, Group: 8, Start: 123456, State: 'S'}, true},
		{"42 ()" + rest, Proc{Pid: 42, Parent: 7, Group: 8, Start: 123456, State: 'S'}, true},
		{"", Proc{}, false},
		{"42 (cat", Proc{}, false},
		{"42 (cat) S 1", Proc{}, false},
		{"x (cat)" + rest, Proc{}, false},
	} {
		got, ok := parseStat([]byte(c.in))
		if ok != c.ok || ok && got != c.want {
			t.Errorf("parseStat(%q) = %+v, %v", c.in, got, ok)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (cat) S 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := parseStat(b); ok && (p.Pid < 0 || p.Parent < 0) {
			t.Errorf("%+v", p)
		}
	})
}
