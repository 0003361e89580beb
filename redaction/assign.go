package redaction

import (
	"strings"
	"unicode"
)

// separator is what stands between a name and its value.
type separator uint8

const (
	none   separator = iota
	colonS           // name: value
	equalS           // name=value, :=, +=, =>
	equalQ           // name == "value": only a quoted one
	commaS           // "name", "value"
	pipeS            // | name | value |
	tagS             // <name>value</name>
	orS              // process.env.TOKEN || "value"
	blankS           // --name value, name value
)

// place is where a name stands, as far as its value's end depends on it.
type place struct {
	id         string
	begin, end int // the identifier
	n          name
	flag       bool // --name
	quote      byte // the quote right before the name, or 0
	slashes    int  // backslashes before that quote
	closed     bool // the name stands in quotes of its own
	sep        separator
	sepAt      int
	tight      bool // no blank on either side of the separator
	typed      bool // name: type = value
}

const (
	maxBlock = 16 << 10 // the longest value that is looked for over lines
	maxLook  = 400      // how far a name's value may stand from it in another attribute
)

// nameAt judges the identifier around a keyword, and hides its value.
func (sc *scan) nameAt(start, end int) {
	if end <= sc.seen {
		return
	}
	s := sc.s
	e := end
	for e < len(s) && e-end < maxName {
		c := s[e]
		if isWord(c) || (c == '-' || c == '.') && isWord(at(s, e+1)) && e+1 < len(s) {
			e++
			continue
		}
		break
	}
	sc.seen = e
	b := start
	for b > sc.low && start-b < maxName {
		c := s[b-1]
		if isWord(c) && !(isAlnum(c) && escapeBefore(s, b)) || c == '-' || c == '.' || c == '$' && b-1 > 0 && isWord(at(s, b)) {
			b--
			continue
		}
		break
	}
	if e-b >= maxName || e-b >= 24 && runOf(s, b, alnum) == e && randomish(s[b:e]) {
		return // base64 that ends like a name
	}
	p := place{begin: b, end: e}
	for p.begin < start && !isWord(s[p.begin]) {
		if s[p.begin] == '-' {
			p.flag = true
		}
		p.begin++
	}
	if p.flag {
		p.flag = b == 0 || !isWord(s[b-1]) && s[b-1] != ')' && s[b-1] != ']' || escapeBefore(s, b)
	}
	p.id = s[p.begin:e]
	// The name's words are judged first by a table of those that were met
	// before: most identifiers of a text recur.
	p.n = sc.names.of(p.id, "")
	if p.n.grade == noName || p.n.grade == weak {
		if w := sc.wordBefore(p.begin); w != "" {
			if n := sc.names.of(p.id, w); n.grade > p.n.grade || notKey[w] && strings.EqualFold(p.id, "key") {
				p.n = n
			}
		}
	}
	if p.n.grade == noName {
		return
	}
	sc.assigned(&p)
}

// wordBefore is the word that stands before i with one blank between, in
// lower case, or "".
func (sc *scan) wordBefore(i int) string {
	s := sc.s
	if i < 3 || s[i-1] != ' ' || !isLetter(s[i-2]) {
		return ""
	}
	b := i - 1
	for b > 0 && isLetter(s[b-1]) && i-b < 16 && !escapeBefore(s, b) {
		b--
	}
	return strings.ToLower(s[b : i-1])
}

// quoteAt reads backslashes and a quote at i.
func quoteAt(s string, i int) (q byte, slashes, next int) {
	j := i
	for j < len(s) && s[j] == '\\' && j-i < 64 {
		j++
	}
	if j < len(s) && (s[j] == '"' || s[j] == '\'' || s[j] == '`') {
		return s[j], j - i, j + 1
	}
	return 0, 0, i
}

func (sc *scan) assigned(p *place) {
	s := sc.s
	i := p.end
	if p.begin >= 2 && s[p.begin-1] == '{' && s[p.begin-2] == '$' { // ${NAME:-default}
		if e := strings.IndexByte(s[i:min(len(s), i+200)], '}'); e > 0 {
			sc.fallback(p, p.begin-2, i+e+1)
		}
		return
	}
	// A quote right before the name (of itself, or of "name: value").
	if b := p.begin - 1; b >= 0 {
		k := b
		for k >= 0 && (s[k] == '-' || s[k] == '.' || s[k] == '$' || s[k] == '_') && b-k < 4 {
			k--
		}
		if k >= 0 && (s[k] == '"' || s[k] == '\'' || s[k] == '`') {
			p.quote = s[k]
			for k--; k >= 0 && s[k] == '\\'; k-- {
				p.slashes++
			}
		}
	}
	if at(s, i) == '?' || at(s, i) == '!' { // password?: string
		if at(s, i+1) == ':' {
			i++
		}
	}
	if q, n, next := quoteAt(s, i); q != 0 && q == p.quote && n == p.slashes {
		p.closed = true
		i = next
		if at(s, i) == ']' || at(s, i) == ')' && at(s, i+1) == ' ' {
			i++
		}
	}
	if !p.closed && at(s, i) == '[' { // char password[] = "x", tokens[0] = "x"
		if k := runOf(s, i+1, word); at(s, k) == ']' {
			i = k + 1
		}
	}
	for k := 0; k < 2 && (at(s, i) == '*' || at(s, i) == '_' && at(s, i-1) != '_' || at(s, i) == '`' && p.quote == 0); k++ { // **Password**: x
		i++
	}
	j := skipBlank(s, i)
	if j > i && (at(s, j) == '[' || at(s, j) == '(') { // AWS Secret Access Key [None]: x
		closer := byte(']')
		if s[j] == '(' {
			closer = ')'
		}
		for k := j + 1; k < len(s) && k-j < 48 && s[k] != '\n'; k++ {
			if s[k] == closer {
				if at(s, k+1) == ':' || at(s, k+1) == '=' {
					if first := s[j+1 : runOf(s, j+1, lower|upper)]; isLiteral(first) && first != "none" && first != "None" && closer == ')' {
						return // password (bool): a parameter's description
					}
					j = k + 1
				}
				break
			}
		}
	}
	if j > i { // Unseal Key 1: x, password #2: x
		k := j
		if at(s, k) == '#' {
			k++
		}
		if e := runOf(s, k, digit); e > k && e-k <= 3 && (at(s, e) == ':' || at(s, e) == '=') {
			j = e
		}
	}
	p.sepAt = j
	switch c := at(s, j); {
	case at(s, i) == '\t', c == ',', c == ';', c == '|', c == '\n', c == '\r':
		if sc.table(p, i) {
			return
		}
	}
	switch at(s, j) {
	case ':':
		switch {
		case at(s, j+1) == ':':
			if !isBlank(at(s, j+2)) || !p.closed {
				return
			}
			p.sep, j = colonS, j+2
		case at(s, j+1) == '=':
			p.sep, j = equalS, j+2
		default:
			p.sep, j = colonS, j+1
			if p.quote != 0 && !p.closed && at(s, j) == p.quote {
				return
			}
			for at(s, j) == '*' && (at(s, j+1) == '*' || at(s, j+1) == ' ') { // **Password:** x
				j++
			}
		}
	case '=':
		switch at(s, j+1) {
		case '=':
			if j == i && p.n.upper && !isBlank(at(s, j+2)) && at(s, j+2) != '=' && at(s, j+2) != '"' && at(s, j+2) != '\'' {
				p.sep, j = equalS, j+1 // PASSWORD==x: it begins with one
				break
			}
			p.sep, j = equalQ, j+2
			if at(s, j) == '=' {
				j++
			}
		case '~':
			if isBlank(at(s, j+2)) {
				return
			}
			p.sep, j = equalS, j+1
		case '>':
			p.sep, j = equalS, j+2
		default:
			p.sep, j = equalS, j+1
		}
	case '+', '?':
		k := j + 1
		if s[j] == '?' && at(s, k) == '?' {
			k++
			if at(s, k) != '=' {
				p.sep, j = orS, k
				break
			}
		}
		if at(s, k) != '=' {
			break
		}
		p.sep, j = equalS, k+1
	case '!':
		if at(s, j+1) == '=' {
			p.sep, j = equalQ, j+2
			if at(s, j) == '=' {
				j++
			}
		}
	case '|':
		switch {
		case at(s, j+1) == '|' && at(s, j+2) == '=':
			p.sep, j = equalS, j+3
		case at(s, j+1) == '|':
			p.sep, j = orS, j+2
		case sc.inTable(p.begin):
			p.sep, j = pipeS, j+1
		}
	case 'o':
		if hasFold(s, j, "or ") && j > i {
			p.sep, j = orS, j+3
		}
	case ',':
		if p.closed {
			if sc.namedBefore(p.begin) { // {"name": "TOKEN", "value": "x"}
				sc.attribute(p, i)
				return
			}
			p.sep, j = commaS, j+1
		}
	case '<':
		if k := p.begin - 1; k >= 0 && s[k] == '>' && p.quote == 0 {
			sc.tagged(p, j)
			return
		}
	case '>':
		if k := p.begin - 1; k >= 0 && (s[k] == '<' || s[k] == ':') {
			p.sep, j = tagS, j+1
		}
	case 0xe2: // arrows
		if strings.HasPrefix(s[j:], "\u2192") || strings.HasPrefix(s[j:], "\u21d2") {
			p.sep, j = equalS, j+3
		}
	case 0xef: // full-width colon and equals sign
		if strings.HasPrefix(s[j:], "\uff1a") {
			p.sep, j = colonS, j+3
		} else if strings.HasPrefix(s[j:], "\uff1d") {
			p.sep, j = equalS, j+3
		}
	}
	if p.sep == none && j > i && at(s, p.begin-1) == '<' && !p.closed { // <password type="x">value</password>
		if k := strings.IndexByte(s[j:min(len(s), j+200)], '>'); k > 0 && s[j+k-1] != '/' && strings.IndexByte(s[j:j+k], '<') < 0 {
			p.sep, j = tagS, j+k+1
		}
	}
	switch p.sep {
	case none:
		sc.unseparated(p, i)
		return
	case colonS, equalS:
		if p.begin > 0 && sc.notAName(p) {
			return
		}
	}
	p.tight = p.sepAt == p.end && !isBlank(at(s, j))
	sc.valueAt(p, j)
}

// notAName: arn:aws:secretsmanager:…:secret:db, https://token:8080,
// a ? "password" : "text", x.password.length.
func (sc *scan) notAName(p *place) bool {
	s, b := sc.s, p.begin
	if s[b-1] == ' ' && b > 6 && s[b-6:b-1] == "param" {
		return true // :param password: what it is for
	}
	if s[p.sepAt] == ':' && s[b-1] == ':' && runOf(s, p.sepAt, lower|upper|colon) > p.sepAt+2 {
		if e := runOf(s, p.sepAt+1, lower|upper|colon); e >= len(s) || isSpace(s[e]) || s[e] == '"' {
			return true // user:password:uid:gid, a line's form
		}
	}
	if s[p.sepAt] == ':' && s[b-1] == ':' {
		k := b
		for k > 0 && !isSpace(s[k-1]) && b-k < 160 {
			k--
		}
		if t := s[k:b]; strings.Contains(t, "arn:") || strings.Contains(t, "urn:") {
			return true
		}
	}
	if s[p.sepAt] == ':' && s[b-1] == '/' && b > 2 && s[b-2] == '/' && s[b-3] == ':' {
		return true
	}
	if p.closed && s[p.sepAt] == ':' {
		k := b - 2
		for k >= 0 && s[k] == '\\' {
			k--
		}
		for k >= 0 && isBlank(s[k]) {
			k--
		}
		return k >= 0 && s[k] == '?'
	}
	return false
}

// inTable says whether a cell begins right before i.
func (sc *scan) inTable(i int) bool {
	if i > 0 && sc.s[i-1] == '|' {
		return false // a|b: an expression
	}
	for i > 0 && (isBlank(sc.s[i-1]) || sc.s[i-1] == '*' || sc.s[i-1] == '`') {
		i--
	}
	return i == 0 || sc.s[i-1] == '|' || sc.s[i-1] == '\n'
}

// valueAt hides the value that begins after a separator at i.
func (sc *scan) valueAt(p *place, i int) {
	s := sc.s
	i = skipBlank(s, i)
	if p.sep == colonS || p.sep == equalS || p.sep == tagS {
		if e := eol(s, i); e >= 0 {
			sc.nextLine(p, e)
			return
		}
	}
	if i >= len(s) {
		return
	}
	// YAML: an anchor or a binary tag before the value; a block after it.
	if p.sep == colonS && !p.tight {
		if s[i] == '&' && isLetter(at(s, i+1)) {
			if k := runOf(s, i+1, word|dash); isBlank(at(s, k)) && at(s, skipBlank(s, k)) != '=' {
				i = skipBlank(s, k)
			}
		}
		if hasFold(s, i, "!!") {
			i = skipBlank(s, runOf(s, i+2, word))
		}
		if (s[i] == '|' || s[i] == '>') && sc.block(p, i) {
			return
		}
	}
	if p.n.kind == authorization {
		sc.authorizationAt(p, i)
		return
	}
	if p.n.kind == cookies {
		sc.cookiesAt(p, i)
		return
	}
	if q, n, next := quoteAt(s, i); q != 0 && p.sep != commaS && !p.closed {
		// Is it the end of the string in which the name stands? "PWD=" + dir,
		// "bad private key: " + err.Error(), HasPrefix(s, "PWD=") {
		if q == p.quote && n == p.slashes || ended(s, next) {
			return
		}
	}
	start, end, q, ok := sc.quoted(i)
	if ok {
		sc.quotedValue(p, start, end, q)
		return
	}
	if p.sep == equalQ || p.sep == commaS || p.sep == orS {
		return
	}
	if sc.wrapped(p, i) {
		return
	}
	switch at(s, i) {
	case '[', '(':
		if hasFold(s, i, "[redacted") {
			return
		}
		if p.n.grade >= firm || p.n.plural {
			sc.list(p, i)
		}
		return
	case '{':
		if at(s, i+1) != '{' && (p.closed || !p.tight || p.sep != equalS) {
			sc.object(p, i)
			return
		}
	case '<':
		if p.sep == tagS && hasFold(s, i, "<![cdata[") {
			e := strings.Index(s[i:min(len(s), i+maxBlock)], "]]>")
			if e > 0 {
				sc.judge(p, i+9, i+e, '"')
			}
			return
		}
	}
	sc.bare(p, i)
}

// wrappers make a value of the string that they are given.
var wrappers = set(`byte bytes from string str b64decode decode decodestring frombase64string fernet secretkeyspec some ok secret secretstr
	securestring secretstring unhexlify fromhex literal plaintext hex tobytes newbytes utf8 encode sha256 md5 new_from_slice quote escape`)

// wrapped: []byte("x"), Buffer.from('x'), Some("x"): the string is the value.
func (sc *scan) wrapped(p *place, i int) bool {
	s := sc.s
	k := i
	if strings.HasPrefix(s[k:], "[]") {
		k += 2
	}
	if hasFold(s, k, "new ") {
		k += 4
	}
	e := k
	for e < len(s) && e-k < 64 && (isWord(s[e]) || s[e] == '.' || s[e] == ':') {
		e++
	}
	if e == k || at(s, e) != '(' {
		return false
	}
	fn := s[k:e]
	if d := strings.LastIndexAny(fn, ".:"); d >= 0 {
		fn = fn[d+1:]
	}
	if !inFold(wrappers, fn) {
		return false
	}
	b, end, q, ok := sc.quoted(skipBlank(s, e+1))
	if !ok {
		return false
	}
	sc.judge(p, b, end, q)
	return true
}

// ended: the quote before i closes a string rather than opens one.
func ended(s string, i int) bool {
	switch at(s, i) {
	case ',', ')', ']', '}', ':', '\n':
		return true
	case ';':
		return closes(s, i)
	case ' ':
		c := at(s, i+1)
		return c == '+' || c == '%' || c == '.' || c == ')' || c == '}'
	}
	return false
}

// eol: the position after blanks is the end of a line (a real one, or the
// escape of one); it gives where the next line begins, or -1.
func eol(s string, i int) int {
	switch {
	case i >= len(s):
		return -1
	case s[i] == '\n':
		return i + 1
	case s[i] == '\r':
		if at(s, i+1) == '\n' {
			return i + 2
		}
		return i + 1
	case s[i] == '\\' && at(s, i+1) == 'n':
		return i + 2
	case strings.HasPrefix(s[i:], `\r\n`):
		return i + 4
	case s[i] == '\\' && eol(s, i+1) >= 0 && at(s, i+1) != '\\': // a line that goes on
		return eol(s, i+1)
	}
	return -1
}

// nextLine: the value stands on the line after its name (AEP-0003 §9.4a has
// \s* after the separator), alone; or below it as a list.
func (sc *scan) nextLine(p *place, i int) {
	s := sc.s
	if p.n.grade < firm {
		return
	}
	indent := sc.indent(p.begin)
	for range 4 { // empty lines and code fences
		j := skipBlank(s, i)
		if strings.HasPrefix(s[min(j, len(s)):], "```") {
			j = lineEnd(s, j)
		}
		e := eol(s, j)
		if e < 0 {
			break
		}
		i = e
	}
	if i >= len(s) {
		return
	}
	j := skipBlank(s, i)
	if c := at(s, j); (c == '+' || c == '-' || c == '>') && isBlank(at(s, j+1)) { // a list item, a diff's line, a quotation
		if c == '-' && p.sep == colonS {
			sc.items(p, i)
			return
		}
		j = skipBlank(s, j+1)
	}
	if p.n.kind == authorization || p.n.kind == cookies {
		if j-i <= indent || nextName(s, j) {
			return
		}
		if p.n.kind == cookies {
			sc.cookiesAt(p, j)
		} else {
			sc.authorizationAt(p, j)
		}
		return
	}
	if start, end, q, ok := sc.quoted(j); ok {
		if p.sep == colonS && start-j > 2 { // a docstring
			return
		}
		if k := skipBlank(s, end+p.slashesOf(s, end)+1); at(s, k) == ':' || at(s, k) == '=' { // the next member
			return
		}
		if p.sep == colonS && j-i < indent {
			return
		}
		sc.judge(p, start, end, q)
		return
	}
	end := sc.bareEnd(p, j)
	if end == j {
		return
	}
	k := skipBlank(s, end)
	if k < len(s) && eol(s, k) < 0 && s[k] != '#' {
		return // more words: a sentence, or a command
	}
	v := s[j:end]
	if isPunct(v) || isReference(v, 0) || isExpression(v, "") || inFold(proseWords, v) || inFold(codeWords, v) {
		return
	}
	// Another assignment, or a key with its own value.
	if m := strings.IndexAny(v, "=:"); m > 0 && runOf(v, 0, word|dash|dot) == m && strings.Trim(v[m:], "=") != "" {
		return
	}
	if m := strings.TrimRight(strings.TrimLeft(v, "+-"), "=:"); len(m) < len(v) && len(m) < maxName && sc.names.of(m, "").grade != noName {
		return
	}
	if strings.HasSuffix(v, ":") || v[0] == '<' || v[0] == '#' || v[0] == '-' && len(v) > 1 && v[1] == '-' || v[0] == '}' || v[0] == ']' {
		return
	}
	sc.hideValue(j, end, p.rule())
}

func (p *place) slashesOf(s string, end int) int {
	n := 0
	for at(s, end+n) == '\\' {
		n++
	}
	return n
}

// isPunct: neither a letter nor a digit of any script.
func isPunct(v string) bool {
	for _, r := range v {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return false
		}
	}
	return true
}

// indent is the column at which the line of i begins; a diff's sign counts as
// a blank.
func (sc *scan) indent(i int) int {
	b := lineStart(sc.s, i, 256)
	n := 0
	for b+n < i && (isBlank(sc.s[b+n]) || n == 0 && (sc.s[b] == '+' || sc.s[b] == '-' && at(sc.s, b+1) != ' ')) {
		n++
	}
	for b+n+1 < i && sc.s[b+n] == '-' && sc.s[b+n+1] == ' ' {
		n += 2
	}
	return n
}

// block hides a YAML block scalar (| or >) under its key.
func (sc *scan) block(p *place, i int) bool {
	s := sc.s
	k := i + 1
	for k < len(s) && (s[k] == '-' || s[k] == '+' || isDigit(s[k])) {
		k++
	}
	k = skipBlank(s, k)
	if at(s, k) == '#' {
		k = lineEnd(s, k)
	}
	if k >= len(s) || s[k] != '\n' && s[k] != '\r' {
		return false
	}
	if p.n.grade < firm && (p.n.kind != plain || p.n.plural) {
		return true
	}
	indent := sc.indent(p.begin)
	next := eol(s, k)
	first, last := -1, next
	for next >= 0 && next < len(s) && next-k < maxBlock {
		e := lineEnd(s, next)
		col := next
		if c := s[next]; c == '+' || c == '-' && at(s, next+1) != ' ' {
			col++
		}
		t := skipBlank(s, col)
		if t < e {
			if t-next <= indent {
				break
			}
			if first < 0 {
				first = t
			}
			last = e
		}
		next = eol(s, e)
	}
	if first >= 0 && !isReference(strings.TrimSpace(s[first:last]), 0) {
		sc.hideValue(first, last, p.rule())
	}
	return true
}

// items hides the strings of a YAML list under its key.
func (sc *scan) items(p *place, i int) {
	s := sc.s
	if p.n.grade < firm && !p.n.plural {
		return
	}
	if p.n.grade == floor {
		p.n.plural = false
	}
	indent := sc.indent(p.begin)
	for n := 0; i >= 0 && i < len(s) && n < 256; n++ {
		j := skipBlank(s, i)
		if at(s, j) != '-' || at(s, j+1) != ' ' || j-i < indent {
			return
		}
		j = skipBlank(s, j+1)
		e := lineEnd(s, j)
		if start, end, q, ok := sc.quoted(j); ok {
			sc.judge(p, start, end, q)
		} else if k := sc.bareEnd(p, j); k > j && skipBlank(s, k) == e && strings.IndexByte(s[j:k], ':') < 0 {
			sc.judge(p, j, k, 0)
		}
		i = eol(s, e)
	}
}

// list hides the strings of [a, "b"] or ("a" "b").
func (sc *scan) list(p *place, i int) {
	s := sc.s
	if p.n.grade == floor {
		p.n.plural = false
	}
	closer := byte(']')
	if s[i] == '(' {
		closer = ')'
	}
	limit := min(len(s), i+4096)
	for i++; i < limit; {
		c := s[i]
		switch {
		case c == closer, c == '{', c == '[':
			return
		case isSpace(c), c == ',', c == '|':
			i++
		default:
			if start, end, q, ok := sc.quoted(i); ok {
				if p.n.kind == authorization {
					sc.authorizationText(p, start, end)
				} else {
					sc.judge(p, start, end, q)
				}
				i = end + p.slashesOf(s, end) + 1
				continue
			}
			if closer == ')' {
				return
			}
			e := i
			for e < limit && s[e] != ',' && s[e] != closer && s[e] != '\n' && s[e] != '"' {
				e++
			}
			t := e
			for t > i && isBlank(s[t-1]) {
				t--
			}
			if v := s[i:t]; p.n.grade >= firm && !p.n.plural && t > i && strings.IndexByte(v, '(') < 0 && (p.n.password || passLike(v) || randomish(v)) && !isExpression(v, "") {
				sc.judge(p, i, t, 0)
			}
			i = max(e, i+1)
		}
	}
}

// object: {"token": {"value": "x"}}. Only members that carry a value are
// looked for; those with a credential's name are found by it.
func (sc *scan) object(p *place, i int) {
	if !p.closed || p.n.grade < firm && !p.n.plural {
		return
	}
	s := sc.s
	limit := min(len(s), i+2048)
	depth := 0
	for i < limit {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return
			}
		case '"', '\'':
			q, n, next := quoteAt(s, i)
			if q == 0 {
				i++
				continue
			}
			e := runOf(s, next, word)
			k := skipBlank(s, e+p.slashes+1)
			if n == 0 && at(s, e+p.slashes) == q && at(s, k) == ':' {
				switch strings.ToLower(s[next:e]) {
				case "value", "data", "content", "plaintext", "raw", "current", "previous", "plain":
					if start, end, q, ok := sc.quoted(skipBlank(s, k+1)); ok {
						sc.judge(p, start, end, q)
						i = end
						continue
					}
				}
			}
			i = max(e, i+1)
			continue
		}
		i++
	}
}

// quotedValue judges a value in quotes, with what is glued to it: "a" + "b",
// 'a'"b".
func (sc *scan) quotedValue(p *place, start, end int, q byte) {
	s := sc.s
	switch p.sep {
	case commaS:
		if !sc.commaValue(p, start, end, q) {
			return
		}
	case orS:
		if v := s[start:end]; len(v) < 4 || strings.IndexByte(v, ' ') >= 0 || p.n.grade < floor && !randomish(v) && !strings.ContainsAny(v, "0123456789!@#$%^&*") {
			return
		}
	case pipeS:
		return
	case equalQ: // a comparison; tokens are what parsers compare
		if v := s[start:end]; isPunct(v) || !p.n.password && p.n.grade >= firm && !passLike(v) && !randomish(v) && (len(v) < 6 || strings.HasSuffix(strings.ToLower(p.id), "token")) {
			return
		}
	}
	if p.n.kind == plain && p.n.grade < firm && p.n.plural {
		return
	}
	sc.judge(p, start, end, q)
	if p.n.grade < firm {
		return
	}
	for range 16 {
		n := p.slashesOf(s, end)
		k := end + n + 1
		for at(s, k-1) == at(s, k) && at(s, k) == q { // a closing triple
			k++
		}
		j := skipBlank(s, k)
		if m := runBackslash(s, k); q == '\'' && m > k && at(s, m) == '\'' && at(s, m+1) == '\'' {
			j = m + 1 // 'it'\''s'
		} else if at(s, j) == '+' || at(s, j) == '.' && q == '\'' || at(s, j) == '\\' && eol(s, j) > 0 {
			if at(s, j) == '\\' {
				j = eol(s, j)
			} else {
				j++
			}
			for j < len(s) && isSpace(s[j]) {
				j++
			}
		} else if j != k || !p.tight {
			return
		}
		if _, m, next := quoteAt(s, j); m != n || next > j && ended(s, next) {
			return
		}
		b, e, q2, ok := sc.quoted(j)
		if !ok || q2 != '"' && q2 != '\'' {
			// A shell word goes on without quotes.
			if p.tight && p.sep == equalS && p.n.upper && k < len(s) && !isSpace(s[k]) && is(s[k], alnum|under|dash|plusSlash) {
				sc.hide(k, sc.bareEnd(p, k), p.rule())
			}
			return
		}
		if e == b {
			return
		}
		sc.hide(b, e, p.rule())
		end, q = e, q2
	}
}

func runBackslash(s string, i int) int {
	for i < len(s) && s[i] == '\\' {
		i++
	}
	return i
}

// commaValue: is "name", "value" a pair rather than a list of words?
func (sc *scan) commaValue(p *place, start, end int, q byte) bool {
	s := sc.s
	v := s[start:end]
	if p.flag {
		return !strings.HasPrefix(v, "-") && !isPath(v)
	}
	if isReference(v, q) || isURL(v) && p.n.grade < floor {
		return false
	}
	if randomish(v) {
		return true
	}
	// A call with the pair as its only arguments: setenv("TOKEN", "x").
	k := p.begin - 2 - p.slashes
	for k >= 0 && isBlank(s[k]) {
		k--
	}
	if k >= 0 && (s[k] == '(' || s[k] == '[' || s[k] == ',') {
		if n := p.slashesOf(s, end); s[k] != '[' && (at(s, skipBlank(s, end+n+1)) == ')' || at(s, skipBlank(s, end+n+1)) == ',' && hasFold(s, k-19, "environmentvariable")) {
			e := k
			for e > 0 && isBlank(s[e-1]) {
				e--
			}
			b := e
			for b > 0 && isWord(s[b-1]) && e-b < 32 {
				b--
			}
			verb := strings.ToLower(s[b:e])
			for _, w := range [...]string{"set", "put", "add", "env", "header", "append", "define", "get", "write", "store", "property", "insert", "with"} {
				if strings.Contains(verb, w) {
					return true
				}
			}
		}
	}
	return p.n.grade == floor && len(v) >= 6 && strings.ContainsAny(v, "0123456789") && strings.ContainsAny(v, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") && !strings.ContainsAny(v, " _.") && !p.n.plural
}

// judge hides s[start:end] if, as the value of p's name, it is a secret.
// q is the quote that it stands in, or 0.
func (sc *scan) judge(p *place, start, end int, q byte) bool {
	v := sc.s[start:end]
	t := strings.TrimSpace(v)
	if q == '`' && p.tight && p.sep == equalS && p.n.upper { // a shell runs it
		return false
	}
	if t == "" || isReference(t, q) || q != 0 && len(t) < 3 && isPunct(t) {
		if strings.HasPrefix(t, "${") {
			return sc.fallback(p, start, end)
		}
		return false
	}
	n := &p.n
	if n.kind == userPass && n.grade == weak && !n.compound && strings.EqualFold(p.id, "pass") && sc.besideUser(p.begin) {
		n.grade, n.kind = firm, plain
	}
	if n.quantity && n.grade == floor && runOf(t, 0, digit|dot|under) == len(t) {
		return false
	}
	if n.kind == authorization {
		return sc.authorizationText(p, start, end)
	}
	if n.kind == userPass {
		if c := strings.IndexByte(t, ':'); c >= 0 && c < len(t)-1 && strings.IndexByte(t, ' ') < 0 && !isURL(t) && !strings.HasPrefix(t[c:], "://") && !isReference(t[c+1:], q) && t[c+1] != ':' {
			o := strings.Index(v, t)
			if runOf(t, c+1, digit) < len(t) {
				sc.hideValue(start+o+c+1, start+o+len(t), p.rule())
				return true
			}
		}
	}
	hide := false
	switch n.grade {
	case floor:
		hide = !(n.plural && q == 0 && !randomish(t))
	case firm:
		switch n.kind {
		case phrase:
			hide = true
		case workingDir:
			hide = !isPath(t) && !isURL(t)
		default:
			hide = len(t) >= 3 && !isPath(t) && !isURL(t) && !hasFold(t, 0, "ssh-") && !hasFold(t, 0, "-----begin pub") && !hasFold(t, 0, "-----begin cert")
		}
	case weak:
		switch n.kind {
		case numeric:
			d := runOf(t, 0, digit)
			hide = d == len(t) && d >= 4 && d <= 10 || (len(t) == 7 || len(t) == 9) && d > 2 && (t[d] == '-' || t[d] == ' ') && runOf(t, d+1, digit) == len(t) || q != 0 && n.grade == weak && randomish(t) || isBackupCode(t)
		case userPass:
			hide = passLike(t) && !isURL(t) && !isPath(t)
			if lastWordIsAuth(p.id) {
				hide = isBasic(t) || randomish(t)
			}
		default:
			hide = randomish(t) && !isPath(t) && !isURL(t) && !isVersion(t) && !isULID(t)
		}
	}
	if !hide {
		return false
	}
	sc.hideValue(start, end, p.rule())
	if q == 0 && p.closed && p.sep == colonS && runOf(v, 0, digit|dot|dash) == len(v) {
		// A number in JSON becomes a string, so that it stays JSON.
		quote := strings.Repeat(`\`, p.slashes) + string(p.quote)
		sc.spans[len(sc.spans)-1].mark = quote + SecretMarker + quote
	}
	return true
}

// besideUser: a user's name stands shortly before i.
func (sc *scan) besideUser(i int) bool {
	s := sc.s[max(0, i-80):i]
	k := strings.LastIndex(s, "user")
	return k >= 0 && strings.IndexByte(s[k:], '}') < 0
}

func lastWordIsAuth(id string) bool { return len(id) >= 4 && strings.EqualFold(id[len(id)-4:], "auth") }

// isBackupCode: abcd-1234, AB12-CD34-EF56.
func isBackupCode(v string) bool {
	return len(v) >= 8 && len(v) <= 24 && strings.IndexByte(v, '-') > 0 && runOf(v, 0, alnum|dash) == len(v) && strings.ContainsAny(v, "0123456789") && strings.IndexByte(v, '-') == 4
}

// passLike: a bare "pass" or "creds" has many meanings; its value is a secret
// only if it mixes letters with digits or signs.
func passLike(v string) bool {
	if len(v) < 5 || strings.IndexByte(v, ' ') >= 0 {
		return false
	}
	l, d, y := 0, 0, 0
	for i := range len(v) {
		switch {
		case isLetter(v[i]):
			l++
		case isDigit(v[i]):
			d++
		case strings.IndexByte("!@#$%^&*+?~", v[i]) >= 0:
			y++
		}
	}
	return l > 0 && d+y > 0 && !isVersion(v) && !isUUID(v)
}

// isVersion: v1.2.3, 1.2.3-rc.1, 20240115, node-18.
func isVersion(v string) bool {
	i := 0
	if v[0] == 'v' || v[0] == 'V' {
		i = 1
	}
	j := runOf(v, i, digit)
	return j > i && j < len(v) && v[j] == '.' && isDigit(at(v, j+1)) && len(v) < 24
}

// fallback hides the default of ${NAME:-default}.
func (sc *scan) fallback(p *place, start, end int) bool {
	v := sc.s[start:end]
	c := strings.IndexByte(v, ':')
	if c < 0 || strings.Count(v, "${") != 1 || p.n.grade < firm {
		return false
	}
	b := c + 1
	if b < len(v) && (v[b] == '-' || v[b] == '=') {
		b++
	}
	e := strings.LastIndexByte(v, '}')
	if e <= b || isReference(v[b:e], 0) || v[b] == '?' || v[b] == '+' {
		return false
	}
	sc.hideValue(start+b, start+e, p.rule())
	return true
}

func (p *place) rule() *Rule {
	switch {
	case p.flag:
		return ruleOption
	case p.sep == tagS:
		return ruleTag
	case p.n.kind == cookies:
		return ruleCookie
	case p.n.kind == authorization:
		return ruleAuthorization
	}
	return ruleNamed
}
