package redaction

import (
	"slices"
	"strconv"
	"strings"
)

// Secret is a value that must never leave, under a name for people.
type Secret struct{ Name, Value string }

// Options say what a Pipeline knows beyond its rules.
type Options struct {
	Home    string   // the operator's home directory; anyone's /home/x is found without it
	NoPII   bool     // leave e-mail addresses and telephone numbers (rule d)
	Secrets []Secret // exact values to hide (rule b): ChildSecrets, the operator's list
}

// Pipeline takes out of text what must not leave (AEP-0003 §9.4): (a) secrets,
// (b) the listed values, (c) home paths, (d) personal data. It is safe for use
// by several goroutines, and running it on its own output changes nothing.
//
// A nil Pipeline is one without options.
type Pipeline struct {
	home  []string // the spellings of the operator's home
	noPII bool
	exact *exact
}

// NewPipeline compiles the options.
func NewPipeline(o Options) *Pipeline {
	p := &Pipeline{home: homeForms(strings.TrimRight(o.Home, `/\`)), noPII: o.NoPII}
	var values []string
	var bounded []bool
	seen := map[string]bool{}
	for _, s := range o.Secrets {
		if len(s.Value) < minListed {
			continue
		}
		for _, f := range encodings(s.Value) {
			if !seen[f] {
				seen[f] = true
				values = append(values, f)
				bounded = append(bounded, len(s.Value) < minSecret)
			}
		}
	}
	if len(values) > 0 {
		p.exact = newExact(values, bounded)
	}
	return p
}

var defaultPipeline = &Pipeline{}

// Finding is a piece of the text that a rule hid. It never holds the piece.
type Finding struct {
	Rule       string
	Start, End int    // bytes of the text as it was given
	Path       string // in a tree, where the text stands: .headers[0].value
}

// Text hides what must not leave.
func (p *Pipeline) Text(s string) string {
	if len(s) < 4 {
		return s
	}
	h := p.hider(everything)
	out := h.text(s)
	return h.again(out)
}

// Explain is Text, and which rule hid what.
func (p *Pipeline) Explain(s string) (string, []Finding) {
	h := p.hider(everything)
	spans := h.spans(s)
	spans = h.addAgain(s, spans)
	spans = p.addPersonal(s, spans)
	var out []Finding
	for _, sp := range spans {
		out = append(out, Finding{Rule: sp.rule.ID, Start: sp.start, End: sp.end})
	}
	return render(s, spans), out
}

// ExplainValue is Value, and which rule hid what, by path.
func (p *Pipeline) ExplainValue(v any) (any, []Finding) { return p.explainTree(v, true) }

func (p *Pipeline) explainTree(v any, explain bool) (any, []Finding) {
	h := p.hider(everything)
	h.explain = explain
	v = h.value(v)
	if len(h.found) > 0 {
		v = h.againValue(v)
	}
	return v, h.findings
}

// depth says which rules run.
type depth uint8

const (
	secretsOnly depth = iota // (a) and (b): for what is structural already
	everything
)

// hider is the pipeline over one event: it remembers what was told to be a
// secret by where it stood, to hide it wherever else it stands.
type hider struct {
	p     *Pipeline
	depth depth
	found []string
	know  map[string]bool
	limit int // the longest string of free text, 0: any

	counts   bool // hits counts what was hidden
	hits     []*Rule
	explain  bool
	path     []string
	findings []Finding
}

// told notes what was hidden of the string at the path of now.
func (h *hider) told(spans []span) {
	if h.counts {
		for _, sp := range spans {
			h.hits = append(h.hits, sp.rule)
		}
	}
	if !h.explain {
		return
	}
	for _, sp := range spans {
		h.findings = append(h.findings, Finding{sp.rule.ID, sp.start, sp.end, strings.Join(h.path, "")})
	}
}

// down goes into a member; the name of it is redacted by the caller.
func (h *hider) down(sign, step string) {
	if h.explain {
		h.path = append(h.path, sign+step)
	}
}

func (h *hider) up() {
	if h.explain {
		h.path = h.path[:len(h.path)-1]
	}
}

func (p *Pipeline) hider(d depth) *hider {
	if p == nil {
		p = defaultPipeline
	}
	return &hider{p: p, depth: d}
}

// maxFound bounds what one event can make a hider remember.
const maxFound = 4096

func (h *hider) learn(values []string) {
	for _, v := range values {
		if h.know[v] || len(h.found) >= maxFound {
			continue
		}
		if h.know == nil {
			h.know = map[string]bool{}
		}
		v = strings.Clone(v)
		h.know[v] = true
		h.found = append(h.found, v)
	}
}

// text is the pipeline over one of the event's strings, but for what later
// strings will tell.
func (h *hider) text(s string) string {
	if len(s) < 4 {
		return s
	}
	if h.limit > 0 && len(s) > h.limit {
		return h.long(s)
	}
	spans := h.spans(s)
	if h.depth == everything {
		spans = h.p.addPersonal(s, spans)
	}
	h.told(spans)
	return render(s, spans)
}

const (
	maxScan = 4 << 20  // of a string that is cut anyway, no more is looked at
	margin  = 64 << 10 // what stands so near to the end of what was looked at may be the beginning of a secret
)

// long redacts a string that is longer than the limit, and cuts it.
func (h *hider) long(s string) string {
	size := len(s)
	if len(s) > maxScan {
		s = s[:runeStart(s, maxScan)]
	}
	spans := h.spans(s)
	if h.depth == everything {
		spans = h.p.addPersonal(s, spans)
	}
	if len(s) < size {
		s = s[:runeStart(s, len(s)-margin)]
		for len(spans) > 0 && spans[len(spans)-1].end > len(s) {
			last := spans[len(spans)-1]
			spans = spans[:len(spans)-1]
			if last.start < len(s) {
				s = s[:last.start]
			}
		}
	}
	h.told(spans)
	out := render(s, spans)
	if len(out) <= h.limit && len(s) == size {
		return out
	}
	cut := len(out)
	if cut > h.limit {
		cut = runeStart(out, h.limit)
		// A marker is not cut in two.
		for inMarker(out, cut) {
			cut--
		}
	}
	return out[:cut] + "\u2026[truncated " + strconv.Itoa(size-cut) + " bytes]"
}

// spans are what rules (a) and (b) hide in s, in order and apart.
func (h *hider) spans(s string) []span {
	var all []span
	sc := newScan(s)
	defer sc.release()

	base := plainView(s)
	if base != nil {
		sc.reset(base.text)
	}
	sc.run()
	collect := func(chain ...*view) {
		h.learn(sc.found)
		for _, sp := range sc.spans {
			for i := len(chain) - 1; i >= 0; i-- {
				if chain[i] != nil {
					sp.start, sp.end = chain[i].source(sp.start, sp.end)
				}
			}
			all = append(all, sp)
		}
	}
	exact := h.p.exact
	find := func(text string, chain ...*view) {
		exact.find(text, func(start, end int) {
			for i := len(chain) - 1; i >= 0; i-- {
				if chain[i] != nil {
					start, end = chain[i].source(start, end)
				}
			}
			all = append(all, span{start: start, end: end, rule: ruleListed})
		})
	}
	collect(base)
	text, hits := sc.s, sc.hits
	if exact != nil {
		find(s)
		if base != nil {
			find(text, base)
		}
	}
	if hits == 0 && (exact == nil || !strings.Contains(text, `\u00`)) {
		return flatten(apart(s, all)) // the other spellings of listed values are looked for as they are
	}
	// What is encoded is read once more, decoded.
	again := func(v *view, chain ...*view) {
		chain = append(chain, v)
		if hits > 0 {
			sc.reset(v.text)
			sc.run()
			collect(chain...)
		}
		if exact != nil {
			find(v.text, chain...)
		}
	}
	for _, decode := range [...]func(string) *view{unescapedView, percentView, entityView} {
		v := decode(text)
		if v == nil {
			continue
		}
		again(v, base)
		if w := decode(v.text); w != nil {
			again(w, base, v)
		}
	}
	return flatten(apart(s, all))
}

// apart keeps spans and the markers that stand in s already apart: what lies
// in a marker is nothing to hide, what touches one takes it in.
func apart(s string, spans []span) []span {
	if len(spans) == 0 || !strings.Contains(s, "[REDACTED:") {
		return spans
	}
	var marks []span
	for i := 0; ; {
		k := strings.Index(s[i:], "[REDACTED:")
		if k < 0 {
			break
		}
		i += k
		for _, m := range [...]string{SecretMarker, PIIMarker} {
			if strings.HasPrefix(s[i:], m) {
				marks = append(marks, span{start: i, end: i + len(m)})
			}
		}
		i++
	}
	kept := spans[:0]
	for _, sp := range spans {
		i, _ := slices.BinarySearchFunc(marks, sp.start, func(m span, x int) int {
			if m.end <= x {
				return -1
			}
			return 1
		})
		inside := false
		for ; i < len(marks) && marks[i].start < sp.end; i++ {
			if m := marks[i]; sp.start >= m.start && sp.end <= m.end {
				inside = true
			} else {
				sp.start, sp.end = min(sp.start, m.start), max(sp.end, m.end)
			}
		}
		if !inside {
			kept = append(kept, sp)
		}
	}
	return kept
}

// flatten sorts spans and joins those that overlap.
func flatten(spans []span) []span {
	if len(spans) < 2 {
		return spans
	}
	slices.SortStableFunc(spans, func(a, b span) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return b.end - a.end
	})
	out := spans[:1]
	for _, sp := range spans[1:] {
		last := &out[len(out)-1]
		if sp.start < last.end {
			if sp.end > last.end {
				last.end, last.mark = sp.end, ""
			}
			continue
		}
		out = append(out, sp)
	}
	return out
}

// addAgain hides what was found elsewhere in the event.
func (h *hider) addAgain(s string, spans []span) []span {
	n := len(spans)
	h.findAgain(s, func(start, end int) {
		spans = append(spans, span{start: start, end: end, rule: ruleAgain})
	})
	if len(spans) == n {
		return spans
	}
	return flatten(apart(s, spans))
}

func (h *hider) findAgain(s string, fn func(start, end int)) {
	if len(h.found) == 0 {
		return
	}
	if len(h.found) > 6 {
		var values []string
		var bounded []bool
		for _, v := range h.found {
			for _, f := range spellings(v) {
				values = append(values, f)
				bounded = append(bounded, len(v) < 16)
			}
		}
		newExact(values, bounded).find(s, fn)
		return
	}
	for _, v := range h.found {
		for _, f := range spellings(v) {
			for i := 0; ; {
				k := strings.Index(s[i:], f)
				if k < 0 {
					break
				}
				b, e := i+k, i+k+len(f)
				i = e
				if len(v) < 16 && (b > 0 && isWord(s[b-1]) && isWord(f[0]) && !escapeBefore(s, b) || e < len(s) && isWord(s[e]) && isWord(f[len(f)-1])) {
					continue
				}
				fn(b, e)
			}
		}
	}
}

// again is addAgain over a text that went through the rules already.
func (h *hider) again(s string) string {
	if len(h.found) == 0 || len(s) < 6 {
		return s
	}
	spans := h.addAgain(s, nil)
	if len(spans) == 0 {
		return s
	}
	h.told(spans)
	return render(s, spans)
}

// inMarker says whether i stands within a marker.
func inMarker(s string, i int) bool {
	b := strings.LastIndexByte(s[max(0, i-len(SecretMarker)):i], '[')
	if b < 0 {
		return false
	}
	b += max(0, i-len(SecretMarker))
	return strings.HasPrefix(s[b:], "[REDACTED:") && strings.IndexByte(s[b:i], ']') < 0
}

// addPersonal adds rules (c) and (d) where (a) and (b) hid nothing.
func (p *Pipeline) addPersonal(s string, spans []span) []span {
	if p == nil {
		p = defaultPipeline
	}
	n := len(spans)
	add := func(found []span) {
		for _, f := range found {
			if !overlaps(spans[:n], f) {
				spans = append(spans, f)
			}
		}
	}
	var buf [16]span
	add(homes(s, p.home, buf[:0]))
	if !p.noPII {
		add(emails(s, buf[:0]))
		add(phones(s, buf[:0]))
	}
	if len(spans) == n {
		return spans
	}
	return flatten(apart(s, spans))
}

// overlaps says whether f touches one of spans, which are in order.
func overlaps(spans []span, f span) bool {
	i, _ := slices.BinarySearchFunc(spans, f.start, func(sp span, x int) int {
		if sp.end <= x {
			return -1
		}
		return 1
	})
	return i < len(spans) && spans[i].start < f.end
}

// render writes s with the spans' marks in their places.
func render(s string, spans []span) string {
	if len(spans) == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 8*len(spans))
	from := 0
	for _, sp := range spans {
		b.WriteString(s[from:sp.start])
		if sp.mark != "" {
			b.WriteString(sp.mark)
		} else {
			b.WriteString(sp.rule.Mark())
		}
		from = sp.end
	}
	b.WriteString(s[from:])
	return b.String()
}
