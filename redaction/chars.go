package redaction

// Byte classes. A credential's body is told by the classes of its bytes.
type charset uint16

const (
	lower charset = 1 << iota
	upper
	digit
	under
	dash
	dot
	plusSlash
	equals
	tilde
	hexLower // a-f
	hexUpper // A-F
	colon
	space
	word // letters, digits, underscore

	alnum     = lower | upper | digit
	hexa      = digit | hexLower | hexUpper
	base64std = alnum | plusSlash
	base64url = alnum | under | dash
	tokenish  = alnum | under | dash | dot | tilde | plusSlash | equals
)

var charsOf = func() (t [256]charset) {
	for c := range t {
		switch b := byte(c); {
		case b >= 'a' && b <= 'z':
			t[c] = lower | word
			if b <= 'f' {
				t[c] |= hexLower
			}
		case b >= 'A' && b <= 'Z':
			t[c] = upper | word
			if b <= 'F' {
				t[c] |= hexUpper
			}
		case b >= '0' && b <= '9':
			t[c] = digit | word
		}
	}
	t['_'] = under | word
	t['-'], t['.'], t['='], t['~'], t[':'] = dash, dot, equals, tilde, colon
	t['+'], t['/'] = plusSlash, plusSlash
	for _, b := range " \t\n\r\v\f" {
		t[b] = space
	}
	return t
}()

func is(b byte, set charset) bool { return charsOf[b]&set != 0 }
func isWord(b byte) bool          { return charsOf[b]&word != 0 }
func isDigit(b byte) bool         { return b-'0' < 10 }
func isLetter(b byte) bool        { return charsOf[b]&(lower|upper) != 0 }
func isAlnum(b byte) bool         { return charsOf[b]&alnum != 0 }
func isSpace(b byte) bool         { return charsOf[b]&space != 0 }
func isBlank(b byte) bool         { return b == ' ' || b == '\t' }

// runOf is the end of the run of set's bytes that begins at i.
func runOf(s string, i int, set charset) int {
	for i < len(s) && charsOf[s[i]]&set != 0 {
		i++
	}
	return i
}

// at is s[i], or 0 beyond the ends.
func at(s string, i int) byte {
	if i < 0 || i >= len(s) {
		return 0
	}
	return s[i]
}

func skipBlank(s string, i int) int {
	for i < len(s) && isBlank(s[i]) {
		i++
	}
	return i
}

func lineStart(s string, i int, limit int) int {
	for n := 0; i > 0 && n < limit; n++ {
		if s[i-1] == '\n' || s[i-1] == '\r' {
			return i
		}
		i--
	}
	return i
}

// lineEnd is the end of the line of i, or a bound on it.
func lineEnd(s string, i int) int {
	for n := 0; n < maxBlock && i < len(s) && s[i] != '\n' && s[i] != '\r'; n++ {
		i++
	}
	return i
}

func lowerByte(b byte) byte {
	if b >= 'A' && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// hasFold is strings.HasPrefix(s[i:], lit) with ASCII case folding; lit is
// lower case.
func hasFold(s string, i int, lit string) bool {
	if i < 0 || len(s)-i < len(lit) {
		return false
	}
	for j := range len(lit) {
		if lowerByte(s[i+j]) != lit[j] {
			return false
		}
	}
	return true
}

// edge says whether a token may begin at i: the byte before is no word byte,
// or is the last of an escape (\n, \t, %3D, \u003d) that stands for one that
// is none.
func edge(s string, i int) bool {
	if i == 0 || !isAlnum(s[i-1]) {
		return true
	}
	return escapeBefore(s, i)
}

// escapeBefore says whether an escape sequence ends right before i.
func escapeBefore(s string, i int) bool {
	if i >= 2 && s[i-2] == '\\' {
		switch s[i-1] {
		case 'n', 't', 'r', 'b', 'f', 'v':
			return true
		}
	}
	if i >= 3 && s[i-3] == '%' && is(s[i-1], hexa) && is(s[i-2], hexa) {
		return true
	}
	if i >= 6 && s[i-6] == '\\' && s[i-5] == 'u' && is(s[i-1], hexa) && is(s[i-2], hexa) && is(s[i-3], hexa) && is(s[i-4], hexa) {
		return true
	}
	return i >= 4 && s[i-4] == '\\' && s[i-3] == 'x' && is(s[i-1], hexa) && is(s[i-2], hexa)
}

// lineEndIn is lineEnd within limit bytes.
func lineEndIn(s string, i, limit int) int {
	return i + lineEnd(s[i:min(len(s), i+limit)], 0)
}
