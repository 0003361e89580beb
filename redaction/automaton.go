package redaction

import "slices"

// automaton finds many literals in one pass (Aho-Corasick as a dense table
// over byte classes). It is for the built-in keywords: few hundred, folded to
// lower case.
type automaton struct {
	class [256]uint8
	width uint32
	next  []uint32   // state*width | hit
	ends  [][]uint16 // by state: the literals that end there

	literals []string
}

const hit = 1 << 31

// newAutomaton compiles literals, which must be lower case; ASCII letters of
// the text match either case.
func newAutomaton(literals []string) *automaton {
	a := &automaton{literals: literals}
	n := uint8(1) // class 0 is "in no literal"
	for _, l := range literals {
		for i := range len(l) {
			if a.class[l[i]] == 0 {
				a.class[l[i]] = n
				n++
			}
		}
	}
	for c := byte('a'); c <= 'z'; c++ {
		a.class[c-'a'+'A'] = a.class[c]
	}
	a.width = uint32(n)

	// The trie, in the table that it becomes: a cell is the offset of the row
	// that its edge leads to, 0 where there is none.
	width := int(a.width)
	states := stateCount(literals)
	a.next = make([]uint32, states*width)
	a.ends = make([][]uint16, states)
	rows := 1
	for id, l := range literals {
		at := 0
		for i := range len(l) {
			cell := &a.next[at+int(a.class[l[i]])]
			if *cell == 0 {
				*cell = uint32(rows * width)
				rows++
			}
			at = int(*cell)
		}
		a.ends[at/width] = append(a.ends[at/width], uint16(id))
	}
	// By breadth, so that the row to fall back on is complete: where there is
	// no edge, it says where to go.
	fail := make([]uint32, states) // by state: the row
	queue := append(make([]uint32, 0, states), 0)
	for n := 0; n < len(queue); n++ {
		at := queue[n]
		row := a.next[at : int(at)+width]
		back := a.next[fail[int(at)/width]:]
		for c, to := range row {
			b := uint32(0)
			if at != 0 {
				b = back[c]
			}
			if to == 0 {
				row[c] = b
				continue
			}
			queue = append(queue, to)
			state, behind := int(to)/width, int(b&^hit)/width
			fail[state] = b &^ hit
			a.ends[state] = append(a.ends[state], a.ends[behind]...)
			if len(a.ends[state]) > 0 {
				row[c] |= hit
			}
		}
	}
	return a
}

// stateCount is how many beginnings literals have, the empty one among them.
func stateCount(literals []string) int {
	n, last := 1, ""
	for _, l := range slices.Sorted(slices.Values(literals)) {
		same := 0
		for same < min(len(l), len(last)) && l[same] == last[same] {
			same++
		}
		n += len(l) - same
		last = l
	}
	return n
}

// exact finds operator-listed values and their encoded forms: Aho-Corasick
// with sparse edges, since the values are few but long and of any byte.
type exact struct {
	root   [256]int32
	nodes  []exactNode
	values []exactValue
}

type exactNode struct {
	edges []exactEdge // sorted by byte
	fail  int32
	ends  int32 // index+1 into values of the literal that ends here
	out   int32 // the nearest node on the fail path where a literal ends
}

type exactEdge struct {
	b  byte
	to int32
}

type exactValue struct {
	n       int  // length of the literal
	bounded bool // must not stand inside a longer word
}

// newExact compiles literals; bounded ones match whole words only.
func newExact(literals []string, bounded []bool) *exact {
	x := &exact{nodes: make([]exactNode, 1)}
	for i, l := range literals {
		at := int32(0)
		for j := range len(l) {
			k, ok := slices.BinarySearchFunc(x.nodes[at].edges, l[j], func(e exactEdge, b byte) int { return int(e.b) - int(b) })
			if !ok {
				to := int32(len(x.nodes))
				x.nodes = append(x.nodes, exactNode{})
				x.nodes[at].edges = slices.Insert(x.nodes[at].edges, k, exactEdge{l[j], to})
			}
			at = x.nodes[at].edges[k].to
		}
		x.values = append(x.values, exactValue{len(l), bounded[i]})
		if x.nodes[at].ends == 0 {
			x.nodes[at].ends = int32(len(x.values))
		}
	}
	var queue []int32
	for _, e := range x.nodes[0].edges {
		x.root[e.b] = e.to
		queue = append(queue, e.to)
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, e := range x.nodes[at].edges {
			f := x.nodes[at].fail
			for f != 0 && x.edge(f, e.b) == 0 {
				f = x.nodes[f].fail
			}
			f = x.step(f, e.b)
			x.nodes[e.to].fail, x.nodes[e.to].out = f, f
			if x.nodes[f].ends == 0 {
				x.nodes[e.to].out = x.nodes[f].out
			}
			queue = append(queue, e.to)
		}
	}
	return x
}

func (x *exact) edge(at int32, b byte) int32 {
	if at == 0 {
		return x.root[b]
	}
	for _, e := range x.nodes[at].edges {
		if e.b == b {
			return e.to
		}
	}
	return 0
}

func (x *exact) step(at int32, b byte) int32 {
	for at != 0 {
		if to := x.edge(at, b); to != 0 {
			return to
		}
		at = x.nodes[at].fail
	}
	return x.root[b]
}

// find calls fn for every literal in s.
func (x *exact) find(s string, fn func(start, end int)) {
	at := int32(0)
	for i := 0; i < len(s); i++ {
		if at == 0 {
			for i < len(s) && x.root[s[i]] == 0 {
				i++
			}
			if i == len(s) {
				return
			}
		}
		at = x.step(at, s[i])
		f := at
		if x.nodes[f].ends == 0 {
			f = x.nodes[f].out
		}
		for ; f != 0; f = x.nodes[f].out {
			e := x.nodes[f].ends
			v := x.values[e-1]
			start, end := i+1-v.n, i+1
			if v.bounded && (start > 0 && isWord(s[start-1]) || end < len(s) && isWord(s[end])) {
				continue
			}
			fn(start, end)
		}
	}
}
