package redaction

import "strings"

// quoted reads a value in quotes at i: where its text begins and ends, and the
// quote. Escaped quotes ("\"" inside a JSON string, at any depth), prefixes
// (r"", f"", $”, b”), triple quotes and values that were cut off before the
// closing quote are read too. The closing quote, with its backslashes, is left
// at end.
func (sc *scan) quoted(i int) (start, end int, q byte, ok bool) {
	s := sc.s
	j := i
	for j < len(s) && j-i < 2 && (isLetter(s[j]) && strings.IndexByte("rRbBfFuUL", s[j]) >= 0 || s[j] == '@' || s[j] == '$' || s[j] == '&' && at(s, j+1) == '"') {
		j++
	}
	q, n, next := quoteAt(s, j)
	if q == 0 {
		if j > i {
			q, n, next = quoteAt(s, i)
		}
		if q == 0 {
			return 0, 0, 0, false
		}
	}
	if n == 0 && at(s, next) == q && at(s, next+1) == q && q != '`' { // """ or '''
		start = next + 2
		for k := start; k < len(s) && k-start < maxBlock; k++ {
			if s[k] == q && at(s, k+1) == q && at(s, k+2) == q {
				return start, k, q, true
			}
		}
		return start, lineEnd(s, start), q, true
	}
	start = next
	multi := q == '`' || hasFold(s, start, "-----begin")
	lines := 0
	for k := start; k < len(s) && k-start < maxBlock; {
		switch c := s[k]; {
		case c == '\\':
			m := k
			for m < len(s) && s[m] == '\\' {
				m++
			}
			run := m - k
			if at(s, m) != q {
				if n == 0 && at(s, m) == '\n' {
					m++
				}
				k = m
				continue
			}
			switch {
			case run == n:
				return start, k, q, true
			case n == 0 && run%2 == 0 && q != '\'':
				return start, m, q, true
			case n == 0 && q == '\'' && closes(s, m) && strings.IndexByte(s[m+1:min(lineEnd(s, m), m+256)], '\'') < 0:
				return start, m, q, true // in a shell a backslash does not escape it
			case n > 0 && run < n:
				return start, k, q, true // the string around it ended
			default:
				k = m + 1
			}
		case c == q && n == 0:
			if q == '\'' && at(s, k+1) == '\'' && at(s, k+2) != '\'' && k+1 < len(s) && k > start && !closes(s, k+1) { // SQL, YAML: ''
				k += 2
				continue
			}
			return start, k, q, true
		case c == q && n > 0:
			return start, k, q, true // the string around it ended
		case c == '\n' || c == '\r':
			if !multi {
				lines++
				if lines > 4 || k-start > 1024 || q == '`' {
					return start, lineEnd(s, start), q, true
				}
				// Only if it closes further down like a value does.
				if e := strings.IndexByte(s[k:min(len(s), k+1024)], q); e < 0 || !closes(s, k+e) || k == start {
					return start, k, q, true
				}
			}
			k++
		default:
			k++
		}
	}
	e := min(len(s), start+maxBlock)
	if !multi {
		e = min(e, lineEnd(s, start))
	}
	return start, e, q, true
}

// closes says whether the byte at i, a quote or a bracket, ends something: what
// follows it is no part of a word.
func closes(s string, i int) bool {
	i++
	if i >= len(s) {
		return true
	}
	switch c := s[i]; c {
	case ',':
		return true
	case ' ', '\t', '\n', '\r', ';', ':', ')', ']', '}', '>', '"', '\'', '`', '|', '&', '<', '?':
		return true
	case '.':
		return i+1 == len(s) || isSpace(s[i+1])
	case '\\':
		switch at(s, i+1) {
		case 'n', 'r', 't', '"', '\'', '\\', '\n':
			return true
		}
	case '/':
		return at(s, i+1) == '>'
	}
	return false
}

// nextName says whether a name and a separator begin at i, as after the comma
// of a=b,c=d.
func nextName(s string, i int) bool {
	i = skipBlank(s, i)
	if q, _, next := quoteAt(s, i); q != 0 {
		i = next
	}
	j := i
	for j < len(s) && j-i < 48 && (isWord(s[j]) || s[j] == '-' || s[j] == '.') {
		j++
	}
	if j == i {
		return false
	}
	if _, _, next := quoteAt(s, j); next > j {
		j = next
	}
	k := skipBlank(s, j)
	return at(s, k) == '=' && at(s, k+1) != '=' || at(s, k) == ':' && at(s, k+1) != ':'
}

// bareEnd is the end of a value without quotes that begins at i: \S+ as the
// floor has it, less what closes the structure around it.
func (sc *scan) bareEnd(p *place, i int) int {
	s := sc.s
	open := [3]int{}
	k := i
	limit := min(len(s), i+maxBlock)
loop:
	for k < limit {
		c := s[k]
		switch c {
		case ' ', '\t', '\n', '\r', '\v', '\f', 0:
			break loop
		case '\\':
			switch at(s, k+1) {
			case ' ':
				k += 2
				continue
			case 'n', 'r', 't':
				if sc.escaped() || k+2 == len(s) || strings.IndexByte("\"'`\\ \n", s[k+2]) >= 0 {
					break loop
				}
			case 'u':
				if strings.HasPrefix(s[k:], `\u00`) {
					break loop
				}
			case '"', '\'', '\\', '`':
				q, _, next := quoteAt(s, k)
				if q != 0 && closes(s, next-1) {
					break loop
				}
				if q == 0 {
					m := k
					for at(s, m) == '\\' {
						m++
					}
					if at(s, m) == 'n' || at(s, m) == 'r' || m == len(s) {
						break loop
					}
					k = m
					continue
				}
				k = next
				continue
			case '\n', '\r':
				break loop
			}
		case '"', '\'', '`':
			if closes(s, k) && (k > i || p.quote != 0) {
				// …unless it was opened inside: pass"word"
				if strings.IndexByte(s[i:k], c) < 0 || p.quote == c {
					break loop
				}
			}
		case ',':
			if k+1 >= len(s) || isSpace(s[k+1]) || strings.IndexByte("\"'{[}])\\", s[k+1]) >= 0 || nextName(s, k+1) {
				break loop
			}
		case ';':
			if closes(s, k) || nextName(s, k+1) || k+1 < len(s) && isLetter(s[k+1]) && semicolonName(s, k+1) {
				break loop
			}
		case '&':
			if at(s, k+1) == '&' || k+1 >= len(s) || isSpace(s[k+1]) || nextName(s, k+1) || hasFold(s, k, "&amp;") || hasFold(s, k, "&quot;") || hasFold(s, k, "&gt;") || hasFold(s, k, "&lt;") || hasFold(s, k, "&#") {
				break loop
			}
		case '|':
			if k+1 >= len(s) || isSpace(s[k+1]) || s[k+1] == '|' {
				break loop
			}
		case '<':
			if at(s, k+1) == '/' || at(s, k+1) == '<' || k > i && isLetter(at(s, k+1)) && strings.IndexByte(s[k:min(len(s), k+32)], '>') > 0 {
				break loop
			}
		case '>':
			if k+1 >= len(s) || isSpace(s[k+1]) {
				if k > i && s[i] != '<' {
					break loop
				}
			}
		case '(':
			open[0]++
		case '[':
			open[1]++
		case '{':
			open[2]++
		case ')', ']', '}':
			o := &open[0]
			if c == ']' {
				o = &open[1]
			} else if c == '}' {
				o = &open[2]
			}
			if *o > 0 {
				*o--
			} else if closes(s, k) || at(s, k+1) == '.' {
				break loop
			}
		case '#':
			if p.begin > 0 && (s[p.begin-1] == '?' || s[p.begin-1] == '&') {
				break loop
			}
		}
		k++
	}
	for k > i+1 && (s[k-1] == ',' || s[k-1] == ';' || s[k-1] == '.' || s[k-1] == ':') && (k == len(s) || isSpace(s[k])) {
		k--
	}
	return min(k, len(s))
}

// semicolonName: "Password=x;Encrypt Mode=y": names of connection strings may
// have blanks.
func semicolonName(s string, i int) bool {
	for j := i; j < len(s) && j-i < 40; j++ {
		switch c := s[j]; {
		case c == '=':
			return true
		case !isWord(c) && c != ' ' && c != '-':
			return false
		}
	}
	return false
}

// escaped says whether the text holds strings with escapes, so that \n in it
// is a line's end rather than part of a value.
func (sc *scan) escaped() bool {
	if sc.json == 0 {
		sc.json = 1
		if strings.Contains(sc.s, `":`) || strings.Contains(sc.s, `\"`) || strings.Contains(sc.s, `": `) || len(sc.s) > 0 && (sc.s[0] == '"' || sc.s[0] == '[' || sc.s[0] == '\'') {
			sc.json = 2
		}
	}
	return sc.json == 2
}

// bare judges a value without quotes.
func (sc *scan) bare(p *place, i int) {
	s := sc.s
	switch p.sep {
	case tagS:
		if b := at(s, p.begin-2); at(s, p.begin-1) == '<' && (b == ':' || b == '[' || b == '/' || b == '@' || b == '=' || b == ' ') {
			return // <user>:<password>@<host>, a form to fill in
		}
		e := strings.IndexByte(s[i:min(len(s), i+4096)], '<')
		if e < 0 {
			e = min(len(s), i+4096) - i
			if l := lineEnd(s, i) - i; l < e {
				e = l
			}
		}
		v := strings.TrimSpace(s[i : i+e])
		if v == "" || isSentence(v) || isPunct(v) || at(s, i+e) == '<' && at(s, i+e+1) != '/' {
			return
		}
		b := i + strings.Index(s[i:i+e], v)
		sc.judge(p, b, b+len(v), 0)
		return
	case pipeS:
		e := i
		for e < len(s) && s[e] != '|' && s[e] != '\n' && s[e] != '\r' {
			e++
		}
		v := strings.Trim(s[i:e], " \t`*")
		if v == "" || strings.IndexByte(v, ' ') >= 0 || !passLike(v) && !randomish(v) && !(p.n.upper && len(v) >= 8) && !(p.n.grade == floor && len(v) >= 6 && !inFold(proseWords, v) && at(s, e) == '|' && (skipBlank(s, e+1) >= len(s) || eol(s, skipBlank(s, e+1)) >= 0)) {
			return
		}
		b := i + strings.Index(s[i:e], v)
		sc.judge(p, b, b+len(v), 0)
		return
	}
	if p.sep == colonS && !p.typed {
		if k := typeEnd(s, i); k > 0 {
			p.typed, p.sep, p.tight = true, equalS, false
			sc.valueAt(p, k)
			return
		}
	}
	end := sc.bareEnd(p, i)
	if end == i {
		return
	}
	v := s[i:end]
	if isPunct(v) && len(v) < 6 {
		return
	}
	rest := s[end:lineEndIn(s, end, 160)]
	if strings.HasPrefix(v, "$(") || v[0] == '`' || strings.HasPrefix(v, "<(") || strings.HasPrefix(v, "${{") || strings.HasPrefix(v, "{{") || strings.HasPrefix(v, "<%") {
		sc.seen = max(sc.seen, i)
		return
	}
	if strings.HasPrefix(v, "<") && isLetter(at(s, i+1)) && strings.IndexByte(v, '>') < 0 { // <your token here>
		if e := strings.IndexByte(rest, '>'); e >= 0 && runOf(rest, 0, word|space|dash) == e {
			return
		}
	}
	if v[0] == '<' && isLetter(at(v, 1)) { // <span class="string">x</span>
		if e := strings.IndexByte(s[i:min(len(s), i+160)], '>'); e > 0 && htmlTags[strings.ToLower(s[i+1:runOf(s, i+1, alnum)])] {
			q := *p
			q.sep = tagS
			sc.bare(&q, i+e+1)
			return
		}
	}
	if len(v) > 1 && v[0] == '/' && v[1] == '^' || inFold(codeWords, v) && p.n.grade < floor {
		return
	}
	if (v[0] == '}' || v[0] == ')' || v[0] == ']') && !p.tight {
		return
	}
	spaced := !p.tight
	if isExpression(v, rest) || isConstant(v) {
		return
	}
	if (spaced || p.n.grade < floor) && inFold(proseWords, strings.TrimRight(v, ",.;:!?")) {
		return
	}
	if sc.isNameOf(p, v, end) {
		return
	}
	if p.n.kind == workingDir && !p.n.compound && !passLike(v) && !randomish(v) && !(p.tight && !p.n.upper && p.sep == equalS) {
		return
	}
	if p.n.kind == userPass && p.n.upper && p.sep == colonS { // --- PASS: TestX
		return
	}
	if spaced && p.n.grade == floor && !p.n.password && runOf(v, 0, lower|upper) == len(v) && sc.nextIsProse(end) {
		return
	}
	if p.n.quantity && p.n.grade == floor && isDigit(v[0]) && runOf(v, 0, digit|dot|under|lower|upper) == len(v) && len(v) < 9 {
		return
	}
	if p.sep == colonS && spaced && p.n.grade < floor && isSentence(strings.TrimSpace(v+rest)) && p.n.kind != phrase {
		return
	}
	if p.n.kind == userPass && strings.HasPrefix(rest, " / ") { // bob / password
		b := skipBlank(s, end+3)
		if e := sc.bareEnd(p, b); passLike(s[b:e]) && !isReference(s[b:e], 0) && !isPath(s[b:e]) {
			sc.hideValue(b, e, p.rule())
		}
		return
	}
	last := sc.more(p, v, end)
	if last > end {
		if isReference(v, 0) {
			return
		}
		sc.judge(p, i, last, 0)
		return
	}
	if sc.judge(p, i, end, 0) && p.n.kind == numeric && p.n.plural { // recovery codes: a, b, c
		for at(s, end) == ',' {
			b := skipBlank(s, end+1)
			if end = sc.bareEnd(p, b); end == b || !sc.judge(p, b, end, 0) {
				return
			}
		}
	}
}

// typeEnd: after "name: " comes a type and "=": where the value begins, or 0.
func typeEnd(s string, i int) int {
	j := i
	for j < len(s) && j-i < 64 {
		c := s[j]
		if c == '=' {
			break
		}
		if !isWord(c) && strings.IndexByte(" []<>|&'.,*?", c) < 0 {
			return 0
		}
		j++
	}
	if at(s, j) != '=' || at(s, j+1) == '=' || at(s, j+1) == '>' || j == i || at(s, j-1) != ' ' {
		return 0
	}
	t := strings.TrimSpace(s[i:j])
	if !isLetter(at(t, 0)) && at(t, 0) != '&' && at(t, 0) != '*' && at(t, 0) != '[' || strings.ContainsAny(t, "0123456789") && !plainIdent(t) {
		return 0
	}
	head := strings.FieldsFunc(t, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') })
	if len(head) == 0 {
		return 0
	}
	first := head[0]
	if first == "static" || first == "mut" || first == "readonly" || first == "dyn" {
		return j + 1
	}
	if isLiteral(first) || first[0] >= 'A' && first[0] <= 'Z' && strings.IndexByte(t, ' ') < 0 || strings.ContainsAny(t, "[<|&*") {
		return j + 1
	}
	return 0
}

// isNameOf: the value is the name again, or another credential's name: a
// variable or a type, in code.
func (sc *scan) isNameOf(p *place, v string, end int) bool {
	s := sc.s
	if runOf(v, 0, word|dot) != len(v) || !keySizes(v) {
		return false
	}
	next := at(s, end)
	eolNext := end >= len(s) || next == '\n' || next == '\r' || (next == '"' || next == '\'' || next == '\\') && closes(s, end)
	code := next == ',' || next == ')' || next == ';' || next == '}' || next == ']' || next == '|' || next == '?'
	if k := skipBlank(s, end); k > end && (at(s, k) == '}' || at(s, k) == '=' || at(s, k) == '|' || at(s, k) == ')' || at(s, k) == '{') {
		code = true
	}
	assigned := p.sep == equalS && !p.tight && (code || eolNext)
	if !code && !assigned {
		return false
	}
	tail := p.id
	if d := strings.LastIndexByte(tail, '.'); d >= 0 {
		tail = tail[d+1:]
	}
	if sameLetters(tail, v) {
		return true
	}
	if code && len(v) <= 2 && !p.tight {
		return true
	}
	if code && p.sep == colonS && len(v) > len(tail) && strings.Contains(squash(v), squash(tail)) && (strings.IndexByte(v, '_') > 0 || v[0] >= 'A' && v[0] <= 'Z' && runOf(v, 0, upper) < len(v)) && !strings.ContainsAny(v, "0123456789") {
		return true // private_key: PRIVATE_KEY_TYPES,
	}
	if d := strings.IndexByte(v, '.'); code && d > 1 && d < len(v)-2 && isLetter(v[0]) && runOf(v, 0, lower|upper|dot|under) == len(v) && !p.tight { // tok.text
		return true
	}
	if p.n.upper && p.tight {
		return false
	}
	n := sc.names.of(strings.Clone(v), "")
	if n.grade == noName {
		return false
	}
	several := strings.IndexByte(v, '_') > 0 || strings.IndexByte(v, '.') > 0
	for i := 1; i < len(v) && !several; i++ {
		several = v[i] >= 'A' && v[i] <= 'Z' && v[i-1] >= 'a' && v[i-1] <= 'z'
	}
	return several || len(v) <= 8
}

// keySizes: the digits of an identifier, if any, are those that keys are
// measured in.
func keySizes(v string) bool {
	for i := 0; i < len(v); i++ {
		if !isDigit(v[i]) {
			continue
		}
		j := runOf(v, i, digit)
		switch v[i:j] {
		case "1", "2", "128", "192", "256", "384", "512", "521", "768", "1024", "2048", "3072", "4096", "25519":
		default:
			return false
		}
		i = j
	}
	return true
}

// isConstant: a number as code writes one: 0x1f, -1000, 0, 1e9.
func isConstant(v string) bool {
	if len(v) == 1 && isDigit(v[0]) {
		return true
	}
	i := 0
	if v[0] == '-' {
		i = 1
	}
	if at(v, i) == '0' && (at(v, i+1) == 'x' || at(v, i+1) == 'X') && len(v)-i <= 10 {
		return runOf(v, i+2, hexa) == len(v)
	}
	return i == 1 && len(v) > 1 && runOf(v, 1, digit) == len(v)
}

// nextIsProse: the word after i is one that only sentences have.
func (sc *scan) nextIsProse(i int) bool {
	s := sc.s
	b := skipBlank(s, i)
	if b == i {
		return false
	}
	return inFold(proseWords, s[b:runOf(s, b, lower|upper)])
}

// squash is an identifier's letters and digits, in lower case.
func squash(v string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "").Replace(v))
}

var htmlTags = set("span b em strong code font td th a i mark tt kbd samp var u s p div li")

func sameLetters(a, b string) bool {
	i, j := 0, 0
	for {
		for i < len(a) && !isLetter(a[i]) {
			i++
		}
		for j < len(b) && !isLetter(b[j]) {
			j++
		}
		if i == len(a) || j == len(b) {
			return i == len(a) && j == len(b)
		}
		if lowerByte(a[i]) != lowerByte(b[j]) {
			return false
		}
		i++
		j++
	}
}

// isSentence says that v is prose: several words, one of the first few such as
// only sentences have.
func isSentence(v string) bool {
	n := 0
	for f := range strings.FieldsSeq(v) {
		n++
		if n > 4 {
			break
		}
		if inFold(proseWords, strings.Trim(f, ",.;:!?()\"'")) && strings.IndexByte(v, ' ') > 0 {
			return true
		}
	}
	return false
}

// more is the end of a value of several words (a passphrase in YAML, INI or an
// environment dump) of which v, up to end, is the first; end if there are no
// more.
func (sc *scan) more(p *place, v string, end int) int {
	s := sc.s
	if runOf(v, 0, lower|upper) != len(v) || p.n.grade < firm {
		return end
	}
	if p.tight && !(p.sep == equalS && p.n.upper && sc.inDump(p.begin)) && !(p.sep == colonS) {
		return end
	}
	last := end
	limit := 6
	if p.n.kind == phrase {
		limit = 30
	}
	for n := 0; ; n++ {
		b := skipBlank(s, last)
		if b >= len(s) || s[b] == '\n' || s[b] == '\r' || s[b] == '#' || s[b] == '"' || s[b] == '\'' || s[b] == '<' || s[b] == '\\' || s[b] == ',' || s[b] == '}' || s[b] == ')' {
			return last
		}
		if b == last || n == limit {
			return end
		}
		e := runOf(s, b, lower|upper|digit)
		w := s[b:e]
		if c := at(s, e); w == "" || c != 0 && !isSpace(c) && c != '"' && c != '\'' && c != '\\' && c != '<' && c != ',' || p.n.kind != phrase && (inFold(proseWords, w) || inFold(codeWords, w) || isLiteral(w)) {
			return end
		}
		last = e
	}
}

// inDump: the lines around i are NAME=value too, as env and .env have them.
func (sc *scan) inDump(i int) bool {
	s := sc.s
	b := lineStart(s, i, 256)
	if b != i && !hasFold(s, b, "export ") {
		return false
	}
	if b > 1 {
		if nb := lineStart(s, b-1, 512); isEnvLine(s[nb : b-1]) {
			return true
		}
	}
	e := lineEnd(s, i)
	if e+1 < len(s) {
		return isEnvLine(s[e+1 : lineEnd(s, e+1)])
	}
	return false
}

func isEnvLine(l string) bool {
	i := runOf(l, 0, upper|digit|under)
	return i > 1 && at(l, i) == '='
}
