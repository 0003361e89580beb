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

	type node struct {
		next map[uint8]int
		fail int
		ends []uint16
	}
	nodes := []node{{next: map[uint8]int{}}}
	for id, l := range literals {
		at := 0
		for i := range len(l) {
			c := a.class[l[i]]
			to, ok := nodes[at].next[c]
			if !ok {
				to = len(nodes)
				nodes = append(nodes, node{next: map[uint8]int{}})
				nodes[at].next[c] = to
			}
			at = to
		}
		nodes[at].ends = append(nodes[at].ends, uint16(id))
	}
	dense := make([]int, len(nodes)*int(n))
	queue := []int{0}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for c := uint8(0); c < n; c++ {
			back := 0
			if at != 0 {
				back = dense[nodes[at].fail*int(n)+int(c)]
			}
			to, ok := nodes[at].next[c]
			if !ok {
				dense[at*int(n)+int(c)] = back
				continue
			}
			nodes[to].fail = back
			nodes[to].ends = append(nodes[to].ends, nodes[back].ends...)
			dense[at*int(n)+int(c)] = to
			queue = append(queue, to)
		}
	}
	a.next = make([]uint32, len(dense))
	a.ends = make([][]uint16, len(nodes))
	for i, to := range dense {
		a.next[i] = uint32(to) * a.width
		if len(nodes[to].ends) > 0 {
			a.next[i] |= hit
		}
	}
	for i := range nodes {
		a.ends[i] = nodes[i].ends
	}
	return a
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
