package event

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"
)

// Parse reads one event and holds it to the whole envelope rule set (AEP-0001
// §5): the error is a *Violation. The event does not alias line. Data is held
// to JSON's rules only; Check holds it to its type's.
func Parse(line []byte) (Event, error) {
	h, data, err := ParseHeader(line)
	if err != nil {
		return Event{}, err
	}
	e := Event{Header: h}
	if data != nil {
		e.Data = append(json.RawMessage(nil), data...)
	}
	return e, nil
}

// ParseHeader is Parse without a copy of the payload: data is the part of line
// that holds it, nil when there is none. Nothing else aliases line. A relay
// forwards line itself, byte for byte (AEP-0001 §4.2).
func ParseHeader(line []byte) (h Header, data []byte, err error) {
	var s Series
	return s.ParseHeader(line)
}

// Series reads events that come one after the other. What an event says with
// the same words as the one before, its source or its session, is held once
// and judged once. The zero Series is ready; it is one goroutine's.
type Series struct {
	Depth int // a bound on nesting below MaxDepth; 0 is none

	before Header
}

// ParseHeader is ParseHeader of the series' next event.
func (s *Series) ParseHeader(line []byte) (h Header, data []byte, err error) {
	p := parser{scanner: newScanner(line), before: &s.before}
	p.deep = min(s.Depth, MaxDepth)
	defer p.free()
	if v := p.envelope(&h); v != nil {
		return Header{}, nil, v
	}
	s.before = Header{Type: h.Type, Source: h.Source, Agent: h.Agent, Session: h.Session, Run: h.Run, Step: h.Step}
	return h, p.data, nil
}

// The string attributes, as parser.text holds them.
const (
	attrID = iota
	attrType
	attrSubject
	attrSource
	attrAgent
	attrSession
	attrRun
	attrStep
	attrCause
	attrTraceparent
	attrCount
)

type parser struct {
	*scanner
	text  [attrCount][]byte // what stands between the quotes, escapes resolved
	seen  uint32            // bits of coreNames' indices
	data  []byte
	wrong *Violation // the first, unless the version explains it

	before *Header // the last good one, whose strings are shared
}

func (p *parser) note(v *Violation) {
	if p.wrong == nil {
		p.wrong = v
	}
}

// syntax turns the scanner's error into a violation.
func (p *parser) syntax() *Violation {
	rule := RuleJSON
	if p.err.Fault == FaultDuplicate {
		rule = RuleDuplicate
	}
	return violation(rule, "AEP-0001 §5", "%v", p.err)
}

func (p *parser) envelope(h *Header) *Violation {
	if p.space() != '{' {
		p.unexpected("an object")
		return p.syntax()
	}
	p.i++
	for first := true; ; first = false {
		if c := p.space(); first && c == '}' {
			break
		} else if c != '"' {
			p.unexpected("a member's name")
			return p.syntax()
		}
		name, escaped, ok := p.str()
		if !ok {
			return p.syntax()
		}
		if escaped {
			name = unquote(name)
		}
		if p.space() != ':' {
			p.unexpected("':'")
			return p.syntax()
		}
		p.i++
		if p.space(); !p.attribute(h, name) {
			return p.syntax()
		}
		if c := p.space(); c == ',' {
			p.i++
		} else if c == '}' {
			break
		} else {
			p.unexpected("',' or '}'")
			return p.syntax()
		}
	}
	p.i++
	if !p.end() {
		return p.syntax()
	}
	if p.wrong != nil {
		return p.wrong
	}
	if p.seen&1 == 0 {
		return violation(RuleRequired, "AEP-0001 §5.1 #1", "aep is missing")
	}
	p.fill(h)
	return h.validate(p.before)
}

// once says whether this is the first time that the attribute of that number
// is seen.
func (p *parser) once(i int) {
	if p.seen&(1<<i) != 0 {
		p.note(violation(RuleDuplicate, "AEP-0001 §5", "%s stands twice", coreNames[i]))
	}
	p.seen |= 1 << i
}

// attribute reads one attribute's value; false when it is not JSON.
func (p *parser) attribute(h *Header, name []byte) bool {
	switch string(name) {
	case "aep":
		p.once(0)
		return p.version()
	case "id":
		return p.string(1, attrID)
	case "type":
		return p.string(2, attrType)
	case "subject":
		return p.string(3, attrSubject)
	case "time":
		p.once(4)
		raw, ok := p.stringValue(4)
		if raw != nil {
			if h.Time, ok = parseTime(raw); !ok {
				p.note(violation(RuleValue, "AEP-0001 §5.1 #5", "time %s is not RFC 3339 with a zone", quote(string(raw))))
			}
			return true
		}
		return ok
	case "source":
		return p.string(5, attrSource)
	case "agent":
		return p.string(6, attrAgent)
	case "session":
		return p.string(7, attrSession)
	case "run":
		return p.string(8, attrRun)
	case "step":
		return p.string(9, attrStep)
	case "seq":
		h.Sequenced = true
		return p.integer(10, &h.Seq)
	case "epoch":
		return p.integer(11, &h.Epoch)
	case "cause":
		return p.string(12, attrCause)
	case "traceparent":
		return p.string(13, attrTraceparent)
	case "severity":
		p.once(14)
		raw, ok := p.stringValue(14)
		if raw != nil {
			if i := indexOf(severityNames[:], raw); i >= 0 {
				h.Severity = Severity(i - 1)
			} else {
				p.note(violation(RuleValue, "AEP-0001 §8.1", "severity %s: want %s", quote(string(raw)), strings.Join(severityNames[:], ", ")))
			}
		}
		return ok
	case "capture":
		p.once(15)
		raw, ok := p.stringValue(15)
		if raw != nil {
			if i := indexOf(levelNames[:], raw); i >= 0 {
				h.Capture = Level(i - 1)
			} else {
				p.note(violation(RuleValue, "AEP-0001 §8.2", "capture %s: want %s", quote(string(raw)), strings.Join(levelNames[:], ", ")))
			}
		}
		return ok
	case "data":
		p.once(16)
		start := p.i
		if start < len(p.b) && p.b[start] != '{' {
			p.note(violation(RuleValue, "AEP-0001 §5.1", "data is %s, want an object", kindAt(p.b[start])))
		}
		if !p.skip(1) {
			return false
		}
		p.data = p.b[start:p.i:p.i]
		return true
	}
	return p.extension(h, name)
}

func indexOf(names []string, raw []byte) int {
	return slices.IndexFunc(names, func(n string) bool { return n == string(raw) })
}

// stringValue reads a value that must be a string that is not empty: raw is
// nil when it is not, which is noted.
func (p *parser) stringValue(number int) (raw []byte, ok bool) {
	if p.i < len(p.b) && p.b[p.i] != '"' {
		p.note(violation(RuleValue, section(number), "%s is %s, want a string", coreNames[number], kindAt(p.b[p.i])))
		return nil, p.skip(1)
	}
	if p.i >= len(p.b) {
		return nil, p.unexpected("a value")
	}
	raw, escaped, ok := p.str()
	if !ok {
		return nil, false
	}
	if escaped {
		if loneSurrogate(raw) {
			p.note(violation(RuleValue, section(number), "%s holds a lone surrogate, which is no character", coreNames[number]))
			return nil, true
		}
		raw = unquote(raw)
	}
	if len(raw) == 0 {
		p.note(violation(RuleValue, section(number), "%s is empty: leave it out", coreNames[number]))
		return nil, true
	}
	return raw, true
}

// section is where an attribute is defined: AEP-0001 §5.1 numbers them.
func section(number int) string {
	return "AEP-0001 §5.1 #" + string(AppendValue(nil, number+1))
}

func (p *parser) string(number, attr int) bool {
	p.once(number)
	raw, ok := p.stringValue(number)
	p.text[attr] = raw
	return ok
}

func (p *parser) version() bool {
	raw, ok := p.stringValue(0)
	if raw == nil || string(raw) == Version {
		return ok
	}
	// The version decides how all the rest is read, so this goes before what
	// was noted already.
	v := string(raw)
	rule := RuleMajor
	if major, _, _ := strings.Cut(v, "."); major == "0" || !digits(major) {
		rule = RuleVersion
	}
	p.wrong = violation(rule, "AEP-0001 §5.1 #1", "aep is %s, want %q", quote(v), Version)
	return ok
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func (p *parser) integer(number int, to *int64) bool {
	p.once(number)
	start := p.i
	if !p.skip(1) {
		return false
	}
	raw := p.b[start:p.i]
	n, plain := int64(0), len(raw) <= 18
	for _, c := range raw {
		if plain = plain && c-'0' <= 9; !plain {
			break
		}
		n = n*10 + int64(c-'0')
	}
	if !plain { // a spelling that is rare: 1.0, 1e3, 9223372036854775807
		v, ok := any(nil), false
		if c := raw[0]; c == '-' || c-'0' <= 9 {
			v, ok = integer(string(raw))
		}
		switch v := v.(type) {
		case int64:
			n = v
		default:
			what := "no integer"
			if ok {
				what = "beyond an integer's range"
			}
			p.note(violation(RuleValue, section(number), "%s is %s, want an integer from 0 to %d", coreNames[number], what, int64(math.MaxInt64)))
			return true
		}
		if n < 0 {
			p.note(violation(RuleValue, section(number), "%s is %d, want an integer from 0", coreNames[number], n))
			return true
		}
	}
	*to = n
	return true
}

func (p *parser) extension(h *Header, raw []byte) bool {
	name := string(raw)
	if !extensionName(name) {
		p.note(violation(RuleExtension, "AEP-0001 §5.4", "%s is neither an attribute nor an extension's name: 1 to 20 of a-z and 0-9", quote(name)))
		return p.skip(1)
	}
	if _, twice := h.Ext[name]; twice {
		p.note(violation(RuleDuplicate, "AEP-0001 §5", "%s stands twice", name))
	}
	if h.Ext == nil {
		h.Ext = make(map[string]any, 4)
	}
	start := p.i
	if start < len(p.b) && (p.b[start] == '{' || p.b[start] == '[') {
		p.note(violation(RuleExtension, "AEP-0001 §5.4", "%s is %s, want a string, an integer or a boolean", name, kindAt(p.b[start])))
		return p.skip(1)
	}
	v, ok := p.value(1)
	if !ok {
		return false
	}
	if v, ok = scalar(v); !ok {
		p.note(violation(RuleExtension, "AEP-0001 §5.4", "%s is %s, want a string, an integer or a boolean", name, kindAt(p.b[start])))
		return true
	}
	h.Ext[name] = v
	return true
}

// kindAt names the kind of value that begins with c.
func kindAt(c byte) string {
	switch c {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// fill gives the header its strings. Those that stood in the header before are
// its; the others are cut from one allocation.
func (p *parser) fill(h *Header) {
	var stack [512]byte
	buf := stack[:0]
	var none string
	b := p.before
	from := [attrCount]*string{
		attrID: &none, attrType: &b.Type, attrSubject: &none, attrSource: &b.Source, attrAgent: &b.Agent, attrSession: &b.Session,
		attrRun: &b.Run, attrStep: &b.Step, attrCause: &none, attrTraceparent: &none,
	}
	for i := range from {
		if was := *from[i]; was == "" || was != string(p.text[i]) {
			buf = append(buf, p.text[i]...)
		}
	}
	all := string(buf)
	for i, to := range [attrCount]*string{
		attrID: &h.ID, attrType: &h.Type, attrSubject: &h.Subject, attrSource: &h.Source, attrAgent: &h.Agent, attrSession: &h.Session,
		attrRun: &h.Run, attrStep: &h.Step, attrCause: &h.Cause, attrTraceparent: &h.Traceparent,
	} {
		if was := *from[i]; was != "" && was == string(p.text[i]) {
			*to = was
			continue
		}
		n := len(p.text[i])
		*to, all = all[:n], all[n:]
	}
}

// Validate holds a header that was made here to the rules that Parse holds a
// received one to; the error is a *Violation.
func (h *Header) Validate() error {
	for name, v := range h.Ext {
		if !extensionName(name) {
			return violation(RuleExtension, "AEP-0001 §5.4", "%s is no extension's name: 1 to 20 of a-z and 0-9", quote(name))
		}
		if _, ok := scalar(v); !ok {
			return violation(RuleExtension, "AEP-0001 §5.4", "%s is a %T, want a string, an integer or a boolean", name, v)
		}
	}
	if h.Seq < 0 || h.Epoch < 0 {
		return violation(RuleValue, "AEP-0001 §5.1 #11", "the position (%d, %d) is negative", h.Epoch, h.Seq)
	}
	if h.Severity < Debug || h.Severity > Critical {
		return violation(RuleValue, "AEP-0001 §8.1", "there is no severity %d", h.Severity)
	}
	if h.Capture < None || h.Capture > Full {
		return violation(RuleValue, "AEP-0001 §8.2", "there is no capture level %d", h.Capture)
	}
	if v := h.validate(&Header{}); v != nil {
		return v
	}
	return nil
}

// validate holds what is in the header to the rules that are not the single
// values' own. What it has in common with a header that was held to them
// already is known to be good.
func (h *Header) validate(good *Header) *Violation {
	switch {
	case h.ID == "":
		return violation(RuleRequired, section(1), "id is missing")
	case h.Type == "":
		return violation(RuleRequired, section(2), "type is missing")
	case h.Time.IsZero():
		return violation(RuleRequired, section(4), "time is missing")
	case h.Source == "":
		return violation(RuleRequired, section(5), "source is missing")
	case h.Agent == "":
		return violation(RuleRequired, section(6), "agent is missing")
	}
	if h.Type != good.Type {
		if v := typeForm(h.Type); v != nil {
			return v
		}
	}
	if h.Source != good.Source && !validURI(h.Source) {
		return violation(RuleValue, section(5), "source %s is no URI", quote(h.Source))
	}
	if h.Traceparent != "" && !validTraceparent(h.Traceparent) {
		return violation(RuleValue, section(13), "traceparent %s is not version-trace-parent-flags in lowercase hex", quote(h.Traceparent))
	}
	const scope = "AEP-0001 §5.2"
	switch ScopeOf(h.Type) {
	case AgentScope:
		if h.Session != "" || h.Run != "" || h.Step != "" || h.Sequenced {
			return violation(RuleScope, scope, "%s is about the agent: leave out session, run, step and seq", h.Type)
		}
	case CommandScope:
		if h.Session == "" {
			return violation(RuleScope, scope, "session is missing: %s is about a session", h.Type)
		}
		if h.Sequenced {
			where := "AEP-0004 §2.2"
			if h.Type == "attention.routed" {
				where = scope
			}
			return violation(RuleScope, where, "%s is about a session that its sender does not own: leave out seq", h.Type)
		}
	default:
		if h.Session == "" {
			return violation(RuleScope, scope, "session is missing: %s belongs to one", h.Type)
		}
		if !h.Sequenced {
			return violation(RuleScope, scope, "seq is missing: %s has a place in its session", h.Type)
		}
	}
	return nil
}

// Categories are the closed set of AEP-0002 §3; vendor types begin with x.
var Categories = []string{
	"agent", "session", "run", "progress", "tool", "delegation", "attention",
	"resource", "error", "state", "assessment", "message", "control",
}

// typeForm holds a type to {category}.{rest} or x.{vendor}.{category}.{rest}.
func typeForm(typ string) *Violation {
	category, rest, _ := strings.Cut(typ, ".")
	form, want := category, 1
	if category == "x" {
		var vendor string
		vendor, rest, _ = strings.Cut(rest, ".")
		for i := range len(vendor) {
			if vendor[i] != '-' && !tokenByte(vendor[i]) {
				return violation(RuleType, "AEP-0001 §6", "type %s: a vendor is of a-z, 0-9, _ and -", quote(typ))
			}
		}
		if form, want = "x.{vendor}", 2; vendor == "" {
			return violation(RuleType, "AEP-0001 §6", "type %s names no vendor", quote(typ))
		}
	}
	for left := rest; left != ""; want-- {
		var token string
		var more bool
		token, left, more = strings.Cut(left, ".")
		for i := range len(token) {
			if !tokenByte(token[i]) {
				return violation(RuleType, "AEP-0001 §6", "type %s: tokens are of a-z, 0-9 and _", quote(typ))
			}
		}
		if token == "" || more && left == "" {
			return violation(RuleType, "AEP-0001 §6", "type %s has an empty token", quote(typ))
		}
	}
	if category != "x" && !slices.Contains(Categories, category) {
		return violation(RuleCategory, "AEP-0002 §3", "type %s: %s is no category; a vendor's type begins with x.{vendor}", quote(typ), quote(category))
	}
	if want > 0 {
		return violation(RuleType, "AEP-0001 §6", "type %s: want at least %d more after %s", quote(typ), want, form)
	}
	return nil
}

func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c-'0' <= 9 || c == '_'
}

// validTraceparent holds a trace context to W3C's form (version 00).
func validTraceparent(s string) bool {
	if len(s) != 55 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; i {
		case 2, 35, 52:
			if c != '-' {
				return false
			}
		default:
			if c-'0' > 9 && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// validURI holds a source to RFC 3986: a scheme, and nothing that a URI may
// not hold.
func validURI(s string) bool {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok || scheme == "" || !letter(scheme[0]) {
		return false
	}
	for i := range len(scheme) {
		if c := scheme[i]; !letter(c) && c-'0' > 9 && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	fragments := 0
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case letter(c), c-'0' <= 9, strings.IndexByte("-._~!$&'()*+,;=:@/?[]", c) >= 0:
		case c == '#':
			if fragments++; fragments > 1 {
				return false
			}
		case c == '%' && i+2 < len(rest) && hexDigit(rest[i+1]) && hexDigit(rest[i+2]):
			i += 2
		default:
			return false
		}
	}
	authority := ""
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		end := strings.IndexAny(after, "/?#")
		if end < 0 {
			end = len(after)
		}
		authority, rest = after[:end], after[end:]
	}
	if strings.ContainsAny(rest, "[]") {
		return false
	}
	host := authority[strings.LastIndexByte(authority, '@')+1:]
	if host != authority && strings.ContainsAny(authority[:len(authority)-len(host)-1], "@[]") {
		return false
	}
	if literal, port, ok := strings.Cut(host, "]"); ok {
		inner, open := strings.CutPrefix(literal, "[")
		return open && inner != "" && !strings.ContainsAny(inner, "[]%") && (port == "" || port[0] == ':' && (port == ":" || digits(port[1:])))
	}
	name, port, hasPort := strings.Cut(host, ":")
	return !strings.Contains(name, "[") && (!hasPort || port == "" || digits(port))
}

func letter(c byte) bool   { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func hexDigit(c byte) bool { return c-'0' <= 9 || c|0x20 >= 'a' && c|0x20 <= 'f' }

// parseTime reads RFC 3339 with a zone, as an instant in UTC. Digits beyond
// nanoseconds are dropped; a leap second is the second after it.
func parseTime(b []byte) (time.Time, bool) {
	num := func(from, n int) int {
		v := 0
		for _, c := range b[from : from+n] {
			if c-'0' > 9 {
				return -1
			}
			v = v*10 + int(c-'0')
		}
		return v
	}
	if len(b) < len("2006-01-02T15:04:05Z") || b[4] != '-' || b[7] != '-' || b[10]|0x20 != 't' || b[13] != ':' || b[16] != ':' {
		return time.Time{}, false
	}
	year, month, day := num(0, 4), num(5, 2), num(8, 2)
	hour, min, sec := num(11, 2), num(14, 2), num(17, 2)
	if year < 0 || month < 1 || month > 12 || day < 1 || hour < 0 || hour > 23 || min < 0 || min > 59 || sec < 0 || sec > 60 {
		return time.Time{}, false
	}
	if day > 28 && day > time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day() {
		return time.Time{}, false
	}
	i, nano := 19, 0
	if b[i] == '.' {
		i++
		start := i
		for unit := int(100 * time.Millisecond); i < len(b) && b[i]-'0' <= 9; i++ {
			nano += unit * int(b[i]-'0')
			unit /= 10
		}
		if i == start {
			return time.Time{}, false
		}
	}
	offset := 0
	switch {
	case len(b)-i == 1 && b[i]|0x20 == 'z':
	case len(b)-i == 6 && (b[i] == '+' || b[i] == '-') && b[i+3] == ':':
		h, m := num(i+1, 2), num(i+4, 2)
		if h < 0 || h > 23 || m < 0 || m > 59 {
			return time.Time{}, false
		}
		if offset = h*60 + m; b[i] == '-' {
			offset = -offset
		}
	default:
		return time.Time{}, false
	}
	t := time.Date(year, time.Month(month), day, hour, min-offset, sec, nano, time.UTC)
	if sec == 60 && !(t.Second() == 0 && t.Minute() == 0 && t.Hour() == 0) {
		return time.Time{}, false
	}
	return t, true
}
