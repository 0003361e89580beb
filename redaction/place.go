package redaction

import "strings"

// unseparated: no separator follows the name. It may be an option, the value
// of another attribute (name: TOKEN, value: x), an argument of set or ENV, a
// .netrc word, or a sentence that says what the password is. i is right after
// the name and its closing quote.
func (sc *scan) unseparated(p *place, i int) {
	s := sc.s
	j := skipBlank(s, i)
	if p.n.grade < firm && p.n.kind == plain && p.n.plural {
		return
	}
	if p.flag && !p.closed {
		if j > i || eol(s, j) >= 0 {
			sc.option(p, j)
		}
		return
	}
	if p.closed || sc.namedBefore(p.begin) {
		if sc.attribute(p, i) {
			return
		}
	}
	if j == i || j >= len(s) {
		return
	}
	line := lineStart(s, p.begin, 200)
	if p.n.kind == authorization { // Authorization Bearer x
		sc.schemeAt(p, j)
		return
	}
	// API_TOKEN        x
	if p.n.grade >= firm && sc.column(p, i, j, line) {
		return
	}
	b := p.begin
	for b > line && !isSpace(s[b-1]) && p.begin-b < 80 { // //host/:_authToken
		b--
	}
	before := sc.wordsBefore(b, line)
	switch {
	case p.n.grade >= firm && sc.verb(p, before):
		if start, end, q, ok := sc.quoted(j); ok {
			sc.judge(p, start, end, q)
			return
		}
		end := sc.bareEnd(p, j)
		v := s[j:end]
		k := skipBlank(s, end)
		alone := k >= len(s) || eol(s, k) >= 0 || strings.IndexByte("|;&#\"')`", s[k]) >= 0 || s[k] == '-'
		if inFold(proseWords, v) || isPunct(v) || v[0] == '-' || !alone && !passLike(v) && !randomish(v) {
			return
		}
		if (!alone && p.n.grade == firm || before[0] == "set" && !p.n.password && !p.n.compound && !strings.HasPrefix(before[1], "config")) && !passLike(v) {
			return
		}
		sc.judge(p, j, end, 0)
		return
	case p.n.grade >= firm && inFold(loginWords, before[1]) && !inFold(proseWords, before[0]):
		// machine h login u password x
		end := sc.bareEnd(p, j)
		if v := s[j:end]; !inFold(proseWords, v) && !isPunct(v) {
			sc.judge(p, j, end, 0)
		}
		return
	}
	if p.n.grade < firm && p.n.kind != numeric {
		return
	}
	sc.stated(p, j)
}

// wordsBefore are the two words before i on its line, nearest first.
func (sc *scan) wordsBefore(i, line int) (out [2]string) {
	s := sc.s
	for n := 0; n < len(out); {
		e := i
		for e > line && (isSpace(s[e-1]) || s[e-1] == '"' || s[e-1] == '\'') {
			e--
		}
		b := e
		for b > line && !isSpace(s[b-1]) && e-b < 64 {
			b--
		}
		if b == e {
			if line == 0 || n > 0 && inFold(proseWords, out[0]) { // .netrc goes over lines
				return out
			}
			i = line - 1
			if line = lineStart(s, i, 200); i <= line {
				return out
			}
			continue
		}
		out[n] = s[b:e]
		n++
		i = b
	}
	return out
}

var (
	verbs      = set("set setx setenv set: config:set #define define requirepass put -gx -x -ux -xg -ugx --secret --plaintext")
	loginWords = set("login user username account machine")
)

// verb: the words before make the next two a name and its value.
func (sc *scan) verb(p *place, before [2]string) bool {
	if inFold(verbs, before[0]) || before[0] == "config" || strings.HasPrefix(before[0], "--") && before[1] == "config" {
		return true
	}
	return p.n.upper && (before[0] == "ENV" || before[0] == "ARG")
}

// option: --password x.
func (sc *scan) option(p *place, j int) {
	s := sc.s
	if e := eol(s, j); e >= 0 { // --password \⏎ x
		if at(s, j) != '\\' {
			return
		}
		j = skipBlank(s, e)
	}
	if p.n.grade < firm && p.n.kind == plain && p.n.plural || j >= len(s) {
		return
	}
	if q, n, next := quoteAt(s, j); q != 0 && n == p.slashes && q == p.quote && closes(s, next-1) { // "… --password", "x"
		return
	}
	if p.n.kind == authorization || p.n.kind == cookies {
		if start, end, q, ok := sc.quoted(j); ok {
			if p.n.kind == cookies {
				sc.cookieText(p, start, end)
			} else if !sc.authorizationText(p, start, end) {
				sc.judge(p, start, end, q)
			}
		}
		return
	}
	if start, end, q, ok := sc.quoted(j); ok {
		v := s[start:end]
		if c := strings.IndexByte(v, ':'); c > 0 && openSSL(v[:c]) {
			if v[:c] == "pass" {
				sc.hideValue(start+c+1, end, ruleOption)
			}
			return
		}
		sc.judge(p, start, end, q)
		return
	}
	end := sc.bareEnd(p, j)
	v := s[j:end]
	if v == "" || v[0] == '-' || v[0] == '(' || strings.HasPrefix(v, "id=") || strings.HasPrefix(v, "type=") || isPunct(v) && len(v) < 6 || strings.HasPrefix(v, "$(") || v[0] == '`' || v[0] == '|' || v[0] == '>' || v[0] == '[' {
		return
	}
	if c := strings.IndexByte(v, ':'); c > 0 && openSSL(v[:c]) {
		if v[:c] == "pass" && c+1 < len(v) {
			sc.hideValue(j+c+1, end, ruleOption)
		}
		return
	}
	rest := s[end:lineEndIn(s, end, 80)]
	if runOf(v, 0, upper|under) == len(v) && len(v) < 24 || runOf(v, 0, lower|dash|under) == len(v) && sc.names.of(v, "").grade >= firm && len(v) < 14 {
		return // --password PASSWORD, as usage texts have it
	}
	if inFold(proseWords, v) || isExpression(v, rest) && strings.IndexByte(v, '(') < 0 && strings.IndexByte(v, '.') > 0 {
		return
	}
	if p.n.kind == userPass && p.n.grade < firm && p.id != "pass" {
		sc.judge(p, j, end, 0)
		return
	}
	if p.n.grade < firm && p.id == "pass" {
		p.n.grade, p.n.kind = firm, plain
	}
	sc.judge(p, j, end, 0)
}

// openSSL: pass:x, env:VAR, file:path, fd:3 as openssl's -passin takes them.
func openSSL(head string) bool {
	return head == "pass" || head == "env" || head == "file" || head == "fd"
}

// namedBefore: "name: ", "key = " or a tag stands before i.
func (sc *scan) namedBefore(i int) bool {
	s := sc.s
	b := i
	for b > 0 && (isBlank(s[b-1]) || s[b-1] == '"' || s[b-1] == '\'' || s[b-1] == '\\') && i-b < 12 {
		b--
	}
	if b == 0 || s[b-1] != ':' && s[b-1] != '=' {
		return b > 0 && s[b-1] == '>'
	}
	for b--; b > 0 && (isBlank(s[b-1]) || s[b-1] == '"' || s[b-1] == '\'' || s[b-1] == '\\'); b-- {
	}
	e := b
	for b > 0 && isWord(s[b-1]) && e-b < 32 {
		b--
	}
	return nameAttrs[strings.ToLower(s[b:e])]
}

var (
	nameAttrs  = set(`name key keyname parameterkey id field param parameter variable var env attribute attr property header label k type option setting secret_name parametername`)
	valueAttrs = set(`value val v default content secretvalue secret_value data defaultvalue default_value stringvalue string_value parametervalue text`)
)

// attribute: the name is the value of one attribute, its own value that of
// another nearby: {"name":"TOKEN","value":"x"}, <add key="Password"
// value="x"/>, variable "db_password" { default = "x" }, <key>…</key><string>x.
func (sc *scan) attribute(p *place, i int) bool {
	s := sc.s
	if p.n.grade < firm && p.n.kind == plain && p.n.plural {
		return false
	}
	limit := min(len(s), i+maxLook)
	terraform := false
	if p.closed {
		b := p.begin - 1 - p.slashes
		for b > 0 && isBlank(s[b-1]) {
			b--
		}
		terraform = b >= 8 && s[b-8:b] == "variable"
	}
	if !terraform && !sc.namedBefore(p.begin) {
		return false
	}
	if k := skipBlank(s, i); at(s, k) == '>' || at(s, k) == '<' { // <string name="api_key">x</string>
		if s[k] == '<' {
			sc.tagged(p, k)
			return true
		}
		if v := s[k+1 : min(len(s), k+2)]; v != "" && v != "<" && !isSpace(v[0]) {
			q := *p
			q.sep = tagS
			sc.bare(&q, k+1)
			return true
		}
	}
	typed := hasFold(s, p.begin-1-p.slashes-5, "type=") // <input type="password" name="x" value="y">
	depth := 0
	for k := i; k < limit; {
		c := s[k]
		switch {
		case typed && c == '>':
			return false
		case c == '{':
			if !terraform || depth > 0 {
				return false
			}
			depth++
		case c == '}':
			return false
		case isLetter(c) && !isWord(at(s, k-1)):
			e := runOf(s, k, word)
			w := strings.ToLower(s[k:min(e, k+32)])
			if !valueAttrs[w] {
				if !typed && nameAttrs[w] && w != "type" && w != "id" && w != "label" && w != "env" && w != "header" && nextName(s, k) {
					return false // the next pair
				}
				k = e
				continue
			}
			m := e
			if _, _, next := quoteAt(s, m); next > m {
				m = next
			}
			m = skipBlank(s, m)
			if at(s, m) == '>' && at(s, k-1) == '<' { // <value>x</value>
				q := *p
				q.sep = tagS
				sc.bare(&q, m+1)
				return true
			}
			if at(s, m) != ':' && at(s, m) != '=' {
				k = e
				continue
			}
			m = skipBlank(s, m+1)
			if p.n.kind == authorization || p.n.kind == cookies {
				if start, end, q, ok := sc.quoted(m); ok {
					if p.n.kind == cookies {
						sc.cookieText(p, start, end)
					} else {
						sc.judge(p, start, end, q)
					}
				}
				return true
			}
			if start, end, q, ok := sc.quoted(m); ok {
				sc.judge(p, start, end, q)
				return true
			}
			if q := *p; m < len(s) && eol(s, m) < 0 && s[m] != '{' && s[m] != '[' {
				q.sep, q.tight = colonS, false
				if (s[m] == '|' || s[m] == '>') && sc.block(&q, m) {
					return true
				}
				sc.bare(&q, m)
			}
			return true
		}
		k++
	}
	return false
}

// tagged: <td>Password</td><td>x</td>, <key>token</key><string>x</string>.
func (sc *scan) tagged(p *place, i int) {
	s := sc.s
	k := i
	inside := false // the value is in an element of its own, or after a colon
	for n := 0; n < 4 && at(s, k) == '<'; n++ {
		e := strings.IndexByte(s[k:min(len(s), k+100)], '>')
		if e < 0 {
			return
		}
		t := strings.ToLower(strings.Trim(s[k+1:k+e], "/ "))
		t, _, _ = strings.Cut(t, " ")
		if n > 0 && s[k+1] == '/' {
			return
		}
		switch t {
		case "td", "th", "dt", "dd", "string", "value", "b", "strong", "code", "em", "span", "key", "name", "tr":
		default:
			return
		}
		inside = s[k+1] != '/'
		k += e + 1
		for k < len(s) && isSpace(s[k]) {
			k++
		}
		if at(s, k) == ':' {
			k = skipBlank(s, k+1)
			inside = true
		}
	}
	if inside && k < len(s) && s[k] != '<' {
		q := *p
		q.sep = tagS
		if e := strings.IndexByte(s[k:min(len(s), k+4096)], '<'); e > 0 && (strings.IndexByte(strings.TrimSpace(s[k:k+e]), ' ') < 0) {
			sc.bare(&q, k)
		}
	}
}

// column: the name begins a line of two columns, the second its value.
func (sc *scan) column(p *place, i, j, line int) bool {
	s := sc.s
	if j-i < 2 && at(s, i) != '\t' || skipBlank(s, line) != p.begin {
		return false
	}
	end := sc.bareEnd(p, j)
	v := s[j:end]
	if k := skipBlank(s, end); k < len(s) && eol(s, k) < 0 {
		return false
	}
	if v == "" || isPunct(v) || isExpression(v, "") || isConstant(v) || strings.IndexByte("*[&(", v[0]) >= 0 {
		return false
	}
	if !p.n.upper && !passLike(v) && !randomish(v) {
		return false
	}
	return sc.judge(p, j, end, 0)
}

// stated: "the password is x", "password x", "token 'x'". Only what looks like
// a secret is one here.
func (sc *scan) stated(p *place, j int) {
	s := sc.s
	said := false
	for _, w := range [...]string{"is ", "was ", "to ", "are ", "is: ", "as ", "- ", "-> ", "ist ", "es ", "est "} {
		if hasFold(s, j, w) {
			j = skipBlank(s, j+len(w))
			said = true
			for _, w := range [...]string{"now ", "set to ", "changed to ", "simply ", "just ", "currently ", "still "} {
				if hasFold(s, j, w) {
					j = skipBlank(s, j+len(w))
				}
			}
			break
		}
	}
	for at(s, j) == '*' {
		j++
	}
	if q, n, next := quoteAt(s, j); q != 0 {
		if p.quote == q && p.slashes == n && !p.closed {
			return // it closes what the name stands in
		}
		e := strings.IndexByte(s[next:min(len(s), next+200)], q)
		if e < 1 || strings.IndexByte(s[next:next+e], '\n') >= 0 {
			return
		}
		e += next
		for e > next && s[e-1] == '\\' {
			e--
		}
		v := s[next:e]
		token := strings.HasSuffix(strings.ToLower(p.id), "token")
		if strings.IndexByte(v, ' ') >= 0 && !said && (token || !isWithPassword(s, p)) || isExpression(v, "") && strings.IndexByte(v, '.')+strings.IndexByte(v, '(') > 0 {
			return
		}
		if randomish(v) || passLike(v) && !(token && len(v) < 8) || said && len(v) >= 4 && !token && isAlnum(v[0]) {
			sc.judge(p, next, e, q)
		} else if !token && p.n.grade >= firm && len(v) >= 4 && isAlnum(v[0]) && isWithPassword(s, p) {
			sc.judge(p, next, e, q)
		}
		return
	}
	end := sc.bareEnd(p, j)
	v := strings.TrimRight(s[j:end], "!?*")
	if v == "" || inFold(proseWords, v) || isVersion(v) || isUUID(v) && !said {
		return
	}
	if p.n.kind == numeric {
		if said && runOf(v, 0, digit) == len(v) && len(v) >= 4 && len(v) <= 8 {
			sc.judge(p, j, j+len(v), 0)
		}
		return
	}
	if strings.IndexByte("*[&", v[0]) >= 0 {
		return
	}
	if strings.IndexByte(v, '(') > 0 || strings.IndexByte(v, '/') > 0 && !randomish(v) || isPath(v) {
		return
	}
	ok := randomish(v)
	if said {
		ok = ok || passLike(v) && len(v) >= 6
	} else if p.n.password || strings.Count(p.id, "_") >= 2 { // password x, secret_access_key x
		ok = ok && strings.IndexByte(v, '.') < 0 || passLike(v) && len(v) >= 7 && runOf(v, 0, alnum) == len(v) && runOf(v, runOf(v, 0, lower|upper), digit) < len(v)
	} else {
		ok = ok && (len(v) >= 12 || passLike(v) && strings.ContainsAny(v, "!@#$%^&*")) && strings.IndexByte(v, '.') < 0
	}
	if ok {
		sc.judge(p, j, j+len(v), 0)
	}
}

// isWithPassword: SQL's PASSWORD 'x', #define PASSWORD "x", :password "x".
func isWithPassword(s string, p *place) bool {
	b := p.begin - 1
	if b >= 0 && s[b] == ':' {
		return true
	}
	for b >= 0 && isBlank(s[b]) {
		b--
	}
	e := b + 1
	for b >= 0 && !isSpace(s[b]) && e-b < 24 {
		b--
	}
	switch strings.ToLower(s[b+1 : e]) {
	case "with", "encrypted", "unencrypted", "#define", "set", "define", "login", "and", "bind", "-":
		return true
	}
	return p.id == "PASSWORD" || p.n.upper
}
