package redaction

import (
	"strings"
	"sync"
)

// span is a piece of the text that a rule hides.
type span struct {
	start, end int
	rule       *Rule
	mark       string // what stands in its place, when not the rule's marker
}

// scan is one pass over one text. It is pooled: names keeps what it learned.
type scan struct {
	s      string
	spans  []span
	found  []string // values that were told by where they stand, not by what they are
	at     int      // where the pass stands
	done   int      // everything from at up to here is hidden already, but for the holes
	low    int      // a look back from the hit at hand ends here
	holes  []hole   // … which are these, in order
	hole   int      // the first of them that at has not passed
	line   int      // the end of the command line that was read last
	nested int      // how many commands were read in it
	head   int      // the line that headed the last table
	tabled int      // … and its end
	seen   int      // the end of the identifier that was judged last
	kube   int      // the end of the manifest that was read last
	jwk    int      // … of the key
	plain  int      // … of the run of base64 that is no token
	hits   int
	json   int8 // 0 not known, 1 no, 2 the text holds escaped strings
	names  names
	toks   []token
}

var scans = sync.Pool{New: func() any { return new(scan) }}

func newScan(s string) *scan {
	sc := scans.Get().(*scan)
	sc.reset(s)
	return sc
}

func (sc *scan) reset(s string) {
	sc.s, sc.spans, sc.found = s, sc.spans[:0], sc.found[:0]
	sc.at, sc.done, sc.low, sc.holes, sc.hole = 0, 0, 0, sc.holes[:0], 0
	sc.head, sc.tabled, sc.line, sc.nested = 0, 0, 0, 0
	sc.seen, sc.kube, sc.jwk, sc.plain, sc.hits, sc.json = 0, 0, 0, 0, 0, 0
}

func (sc *scan) release() {
	sc.s = ""
	clear(sc.spans)
	clear(sc.found)
	clear(sc.toks[:cap(sc.toks)])
	if cap(sc.spans) > 4096 || cap(sc.found) > 4096 {
		sc.spans, sc.found = nil, nil
	}
	scans.Put(sc)
}

// hole is a piece before done that was not hidden, because a rule that looks
// ahead (a command's words, a URL's user part) hid something behind it.
// Before low is what was hidden earlier.
type hole struct{ start, end, low int }

// hide adds a span; what it covers is not looked at again.
func (sc *scan) hide(start, end int, r *Rule) {
	if start >= end {
		return
	}
	sc.spans = append(sc.spans, span{start: start, end: end, rule: r})
	if sc.hole < len(sc.holes) {
		if h := &sc.holes[sc.hole]; start >= h.start && end <= h.end && start-sc.at < 16 {
			h.start, h.low = end, end
		}
	}
	if from := max(sc.at, sc.done); start > from {
		sc.holes = append(sc.holes, hole{from, start, sc.done})
	}
	sc.done = max(sc.done, end)
}

// hideValue is hide for a value that was told by its place: it is then hidden
// wherever it stands in the same event.
func (sc *scan) hideValue(start, end int, r *Rule) {
	if start >= end {
		return
	}
	sc.hide(start, end, r)
	if v := sc.s[start:end]; len(v) <= 4096 && !guessable(v) {
		sc.found = append(sc.found, v)
	}
}

// trigger is a literal of the automaton and what to do where it stands.
type trigger struct {
	literal string
	fire    func(sc *scan, start, end int)
}

var engine = sync.OnceValue(func() *struct {
	auto *automaton
	fire []func(sc *scan, start, end int)
} {
	e := &struct {
		auto *automaton
		fire []func(sc *scan, start, end int)
	}{}
	var literals []string
	for _, t := range triggers() {
		literals = append(literals, t.literal)
		e.fire = append(e.fire, t.fire)
	}
	e.auto = newAutomaton(literals)
	return e
})

func triggers() []trigger {
	var all []trigger
	for _, k := range nameLiterals {
		follow, bounded := follows[k]
		all = append(all, trigger{k, func(sc *scan, start, end int) {
			// Most hits are inside other words: typing, compass, author.
			if c := at(sc.s, end); bounded && c >= 'a' && c <= 'z' && strings.IndexByte(follow, c) < 0 {
				return
			}
			sc.nameAt(start, end)
		}})
	}
	all = append(all, shapeTriggers()...)
	all = append(all, commandTriggers()...)
	all = append(all, callTriggers()...)
	all = append(all, placeTriggers...)
	return all
}

// nameLiterals is a part of every credential's name.
var nameLiterals = []string{
	"pass", "pwd", "pw", "secret", "token", "key", "auth", "cred", "cookie", "sid", "sessid", "otp", "pin", "psk", "phrase",
	"mnemonic", "jwt", "bearer", "pat", "code", "sas", "seed", "webhook", "cvv", "cvc", "community", "words", "hash",
	"kennwort", "contrase", "senha", "wachtwoord", "motdepasse", "has\u0142o", "haslo", "parola",
	"\u043f\u0430\u0440\u043e\u043b\u044c", "\u041f\u0430\u0440\u043e\u043b\u044c", "\u5bc6\u7801", "\u5bc6\u78bc", "\u30d1\u30b9\u30ef\u30fc\u30c9", "\ube44\ubc00\ubc88\ud638",
}

// follows are the letters that may go on after a literal in a credential's
// name: key(s), auth(orization). A literal that is not here may be followed by
// any.
var follows = map[string]string{
	"pass": "wpckd", "pwd": "", "pw": "d", "key": "sc", "auth": "o", "cred": "es", "cookie": "s", "sid": "", "sessid": "", "otp": "", "pin": "",
	"psk": "", "phrase": "s", "jwt": "", "pat": "", "code": "s", "sas": "", "seed": "p", "webhook": "", "cvv": "", "cvc": "", "community": "",
	"words": "", "hash": "", "mnemonic": "", "bearer": "t",
}

// run is the pass: rule (a), on one view of the text.
func (sc *scan) run() {
	e := engine()
	next, class := e.auto.next, &e.auto.class
	state := uint32(0)
	s := sc.s
	for i := 0; i < len(s); i++ {
		state = next[state&^hit+uint32(class[s[i]])]
		if state&hit == 0 {
			continue
		}
		sc.hits++
		for _, id := range e.auto.ends[(state&^hit)/e.auto.width] {
			t := e.fire[id]
			n := len(e.auto.literals[id])
			if start := i + 1 - n; sc.open(start) {
				sc.at = i + 1
				t(sc, start, i+1)
			}
		}
	}
	sc.done, sc.low, sc.holes, sc.hole = 0, 0, sc.holes[:0], 0
	for i := 0; ; i++ {
		n := strings.IndexByte(s[i:], '.')
		if n < 0 {
			break
		}
		i += n
		sc.dotAt(i)
	}
}

// open says whether what begins at start is not hidden yet, and sets low.
func (sc *scan) open(start int) bool {
	if start >= sc.done {
		sc.low, sc.holes, sc.hole = sc.done, sc.holes[:0], 0
		return true
	}
	for sc.hole < len(sc.holes) && sc.holes[sc.hole].end <= start {
		sc.hole++
	}
	if sc.hole < len(sc.holes) && start >= sc.holes[sc.hole].start {
		sc.low = sc.holes[sc.hole].low
		return true
	}
	return false
}
