package redaction

import (
	"maps"
	"slices"
	"strings"
)

// calls take a user's name and a password as their arguments, without naming
// them: which of the arguments is the password, counted from 1.
var calls = map[string]int{
	"login(": 2, "basicauth(": 2, "basic_auth(": 2, "auth=(": 2, "auth = (": 2, ".auth(": 2, "authenticate(": 2, "networkcredential(": 2, "credentials(": 2,
	"passwordtoken(": 2, "passwordcredential(": 2, "passwordcredentials(": 2, "mysqli(": 3, "mysqli_connect(": 3, "mysql_connect(": 3, " pdo(": 3, "getconnection(": 3,
	"withcredentials(": 2, "plainauth(": 3, "signin(": 2, "sign_in(": 2, "jwt.sign(": 2, "jwt.encode(": 2, "jwt.verify(": 2, "createhmac(": 2, "hmac.new(": 1,
}

func callTriggers() []trigger {
	var all []trigger
	for _, c := range slices.Sorted(maps.Keys(calls)) {
		all = append(all, trigger{c, func(sc *scan, start, end int) { sc.callAt(end, calls[c]) }})
	}
	return all
}

// callAt hides the n-th argument of the call whose arguments begin at i, if
// that and those before it are strings.
func (sc *scan) callAt(i, n int) {
	s := sc.s
	for arg := 1; ; arg++ {
		i = skipBlank(s, i)
		b, e, q, ok := sc.quoted(i)
		if !ok || e-b > 200 {
			// A variable or a constant in front of the password is no matter.
			k := runOf(s, i, word|dot)
			if at(s, i) == '{' { // an object in place
				if c := strings.IndexByte(s[i:min(len(s), i+200)], '}'); c > 0 {
					k = i + c + 1
				}
			}
			if arg == n || k == i || k-i > 200 {
				return
			}
			i = skipBlank(s, k)
		} else {
			if arg == n {
				if v := s[b:e]; len(v) >= 4 && !isReference(v, q) && !isURL(v) && strings.IndexByte(v, '/') < 0 {
					sc.hideValue(b, e, ruleCall)
				}
				return
			}
			i = e
			for at(s, i) == '\\' {
				i++
			}
			i = skipBlank(s, i+1)
		}
		if at(s, i) != ',' {
			return
		}
		i++
	}
}

// placeTriggers are the places that no name of a value announces.
var placeTriggers = []trigger{
	{"-----begin ", (*scan).pemAt},
	{"---- begin ", (*scan).pemAt},
	{"-----end ", (*scan).pemEndAt},
	{"private-lines:", (*scan).puttyAt},
	{"ls0tls1crudjti", (*scan).base64PEMAt},
	{"eyj", (*scan).jwtAt},
	{"bearer", (*scan).bearerAt},
	{"basic", (*scan).basicAt},
	{"://", (*scan).urlAt},
	{"@", (*scan).atHost},
	{"sig", (*scan).queryAt},
	{"signature", (*scan).queryAt},
	{"sign", (*scan).queryAt},
	{"hmac", (*scan).queryAt},
	{"code", (*scan).queryAt},
	{"ticket", (*scan).queryAt},
	{"key", (*scan).queryAt},
	{"appid", (*scan).queryAt},
	{"insert into", (*scan).insertAt},
	{"identified ", (*scan).identifiedAt},
	{"kind", (*scan).kubeAt},
	{"\"kty", (*scan).jwkAt},
	{":5432:", (*scan).pgpassAt},
	{":5433:", (*scan).pgpassAt},
	{":6432:", (*scan).pgpassAt},
	{":*:", (*scan).pgpassAt},
	{"--password-stdin", (*scan).stdinAt},
	{"--with-token", (*scan).stdinAt},
	{"--passphrase-fd", (*scan).stdinAt},
	{"--stdin", (*scan).stdinAt},
	{"sudo -s", (*scan).stdinAt},
	{"chpasswd", (*scan).stdinAt},
	{"secret put ", (*scan).stdinAt}, {"secret set ", (*scan).stdinAt}, {"secrets set ", (*scan).stdinAt}, {"secrets add ", (*scan).stdinAt},
	{"base64", (*scan).stdinAt}, {"mkpasswd", (*scan).stdinAt}, {"kinit ", (*scan).stdinAt}, {"passwd ", (*scan).stdinAt},
	{"$2a$", (*scan).cryptAt}, {"$2b$", (*scan).cryptAt}, {"$2y$", (*scan).cryptAt}, {"$2x$", (*scan).cryptAt},
	{"$1$", (*scan).cryptAt}, {"$5$", (*scan).cryptAt}, {"$6$", (*scan).cryptAt}, {"$7$", (*scan).cryptAt}, {"$y$", (*scan).cryptAt},
	{"$apr1$", (*scan).cryptAt}, {"$argon2", (*scan).cryptAt}, {"$pbkdf2", (*scan).cryptAt}, {"$scrypt$", (*scan).cryptAt},
	{"{ssha", (*scan).sshaAt},
	{"send \"", (*scan).expectAt},
}

// expectAt: expect's send "password\r" after a prompt for one.
func (sc *scan) expectAt(start, end int) {
	s := sc.s
	b := start
	for b > 0 && start-b < 120 {
		b--
	}
	before := strings.ToLower(s[b:start])
	k := strings.LastIndex(before, "expect")
	if k < 0 || !strings.Contains(before[k:], "assword") && !strings.Contains(before[k:], "assphrase") {
		return
	}
	if bb, e, q, ok := sc.quoted(end - 1); ok {
		v := s[bb:e]
		for strings.HasSuffix(v, `\r`) || strings.HasSuffix(v, `\n`) {
			v = v[:len(v)-2]
		}
		v = strings.TrimRight(v, "\r\n")
		if !isReference(v, q) {
			sc.hideValue(bb, bb+len(v), ruleCommand)
		}
	}
}

func (sc *scan) sshaAt(start, end int) {
	s := sc.s
	k := strings.IndexByte(s[end:min(len(s), end+8)], '}')
	if k < 0 {
		return
	}
	e := runOf(s, end+k+1, base64std|equals)
	if e-end >= 20 {
		sc.hide(start, e, ruleCrypt)
	}
}

// pemEndAt: the tail of a private key whose beginning was cut off.
func (sc *scan) pemEndAt(start, end int) {
	s := sc.s
	e := end
	for e < len(s) && (isWord(s[e]) || s[e] == ' ') && e-end < 64 {
		e++
	}
	if !strings.Contains(s[end:e], "PRIVATE") {
		return
	}
	e = runOf(s, e, dash)
	b := start
	for b > sc.low && b > 0 && start-b < maxBlock {
		nl := b - 1
		if s[nl] != '\n' {
			if nl > 0 && s[nl-1] == '\\' && (s[nl] == 'n' || s[nl] == 'r') {
				k := nl - 1
				for k > sc.low && is(s[k-1], base64std|equals) {
					k--
				}
				if nl-1-k < 16 {
					break
				}
				b = k
				if k >= 2 && s[k-2] == '\\' && s[k-1] == 'n' {
					continue
				}
				break
			}
			break
		}
		k := nl
		for k > sc.low && (is(s[k-1], base64std|equals) || s[k-1] == '\r') {
			k--
		}
		if nl-k < 8 {
			break
		}
		b = k
		for k > 0 && nl-k < 100 && s[k-1] != '\n' {
			k--
		}
		if k > 0 && s[k-1] == '\n' {
			if k != b && runOf(s, k, space|digit) < b && !strings.ContainsAny(s[k:b], "+-|>#*\u2192") {
				break
			}
			b = k
			continue
		}
		break
	}
	sc.hide(b, e, rulePEM)
}

// pgpassAt: host:port:database:user:password.
func (sc *scan) pgpassAt(start, end int) {
	s := sc.s
	b := lineStart(s, start, 256)
	if strings.IndexByte(s[b:start], ' ') >= 0 && strings.IndexByte(strings.TrimLeft(s[b:start], " +-\t"), ' ') >= 0 {
		return
	}
	e := lineEndIn(s, end, 512)
	parts := strings.SplitN(s[end:e], ":", 3)
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" || strings.ContainsAny(parts[0]+parts[1], " /\t\"") {
		return
	}
	v := strings.TrimRight(parts[2], " \t")
	if strings.IndexByte(v, ' ') >= 0 || isReference(v, 0) {
		return
	}
	vb := e - len(parts[2])
	sc.hideValue(vb, vb+len(v), rulePgpass)
}

// identifiedAt: SQL's IDENTIFIED BY 'x', IDENTIFIED WITH plugin BY 'x'.
func (sc *scan) identifiedAt(start, end int) {
	s := sc.s
	e := min(len(s), end+64)
	k := strings.Index(strings.ToLower(s[end:e]), "by ")
	if k < 0 || k > 0 && !isBlank(s[end+k-1]) {
		return
	}
	k = skipBlank(s, end+k+3)
	if hasFold(s, k, "password ") {
		k = skipBlank(s, k+9)
	}
	if b, e, q, ok := sc.quoted(k); ok {
		if q != '`' && !isReference(s[b:e], q) {
			sc.hideValue(b, e, ruleSQL)
		}
		return
	}
	if k < len(s) && hasFold(s, end, "by") {
		e := sc.bareEnd(&place{}, k)
		if v := s[k:e]; (at(s, e) == ';' || passLike(v)) && !isReference(v, 0) && !inFold(proseWords, v) {
			sc.hideValue(k, e, ruleSQL)
		}
	}
}

// insertAt: INSERT INTO t (user, password) VALUES ('a', 'x').
func (sc *scan) insertAt(start, end int) {
	s := sc.s
	limit := min(len(s), end+8192)
	open := strings.IndexByte(s[end:min(limit, end+128)], '(')
	if open < 0 {
		return
	}
	i := end + open + 1
	closer := strings.IndexByte(s[i:limit], ')')
	if closer < 0 {
		return
	}
	cols := strings.Split(s[i:i+closer], ",")
	var want []int
	for n, c := range cols {
		c = strings.Trim(c, " \t\r\n`\"'[]\\")
		if c == "" || len(c) > maxName {
			return
		}
		if g := sc.names.of(c, "").grade; g >= firm || g == weak && len(c) < 12 {
			want = append(want, n)
		}
	}
	if len(want) == 0 {
		return
	}
	i += closer + 1
	for i < limit && isSpace(s[i]) {
		i++
	}
	if !hasFold(s, i, "values") {
		return
	}
	i += 6
	for i < limit {
		for i < limit && (isSpace(s[i]) || s[i] == ',') {
			i++
		}
		if at(s, i) != '(' {
			return
		}
		i++
		for col := 0; i < limit; col++ {
			for i < limit && isSpace(s[i]) {
				i++
			}
			b, e, q, ok := sc.quoted(i)
			if ok {
				i = e
				for i < limit && (s[i] == '\\' || s[i] == q) {
					i++
				}
			} else {
				b = i
				depth := 0
				for i < limit && (depth > 0 || s[i] != ',' && s[i] != ')') {
					if s[i] == '(' {
						depth++
					} else if s[i] == ')' {
						depth--
					}
					i++
				}
				e = i
			}
			for _, w := range want {
				if w != col {
					continue
				}
				p := place{n: sc.names.of(strings.Trim(cols[w], " \t\r\n`\"'[]\\"), "")}
				if ok {
					sc.judge(&p, b, e, q)
				} else if v := strings.TrimSpace(s[b:e]); isDigit(at(v, 0)) && p.n.grade >= firm {
					sc.judge(&p, b, b+len(v), 0)
				} else if c := strings.IndexByte(v, '('); c > 0 { // crypt('x', gen_salt('bf'))
					if bb, ee, q, ok := sc.quoted(b + strings.Index(s[b:e], v) + c + 1); ok && ee < e {
						sc.judge(&p, bb, ee, q)
					}
				}
			}
			for i < limit && isSpace(s[i]) {
				i++
			}
			if at(s, i) == ')' {
				i++
				break
			}
			if at(s, i) != ',' {
				return
			}
			i++
		}
	}
}

// table: the name heads a column; what stands under it is hidden.
func (sc *scan) table(p *place, i int) bool {
	s := sc.s
	if p.n.grade < firm || p.n.kind == authorization {
		return false
	}
	j := i
	for at(s, j) == ' ' {
		j++
	}
	b := lineStart(s, p.begin, 1024)
	if b < sc.tabled && b != sc.head {
		return false
	}
	d := at(s, j)
	if d != ',' && d != ';' && d != '\t' && d != '|' {
		if j < len(s) && d != '\n' && d != '\r' {
			return false
		}
		k := p.begin
		for k > b && (s[k-1] == ' ' || s[k-1] == '"') {
			k--
		}
		if k == b {
			return false
		}
		d = s[k-1]
		if d != ',' && d != ';' && d != '\t' && d != '|' {
			return false
		}
	}
	e := lineEndIn(s, i, 1024)
	if e >= len(s) {
		return false
	}
	head := s[b:e]
	if d == '|' && !strings.Contains(head, " |") && head[0] != '|' || d == '\t' && head[0] == '\t' {
		return false // an expression, an indented line
	}
	col, n, filled := -1, 0, 0
	for off := 0; off <= len(head); n++ {
		k := strings.IndexByte(head[off:], d)
		if k < 0 {
			k = len(head) - off
		}
		c := head[off : off+k]
		t := strings.Trim(c, " \"'`*\r")
		if b+off <= p.begin && p.begin < b+off+k {
			if len(t) != len(p.id) && !(len(t) > len(p.id)+1 && strings.HasSuffix(t, " "+p.id) && beforeKey[strings.ToLower(t[:len(t)-len(p.id)-1])]) {
				return false
			}
			col = n
		}
		if t != "" {
			filled++
		}
		if len(t) > 40 || runOf(t, 0, word|dash|space|dot) != len(t) || t != "" && runOf(t, 0, digit) == len(t) {
			return false
		}
		off += k + 1
	}
	if filled < 2 || col < 0 {
		return false
	}
	found := false
	head0 := b
	next := eol(s, e)
	for rows := 0; next > 0 && next < len(s) && rows < 100000; rows++ {
		b, e := next, lineEnd(s, next)
		next = eol(s, e)
		if strings.Trim(s[b:e], " -+|=:\r") == "" {
			if rows > 0 && b == e {
				break
			}
			continue
		}
		c := 0
		cb, ce := -1, -1
		k := b
		for k <= e {
			start := k
			t := start
			for t < e && s[t] == ' ' {
				t++
			}
			if t < e && s[t] == '"' {
				for k = t + 1; k < e; k++ {
					if s[k] == '"' {
						if at(s, k+1) != '"' {
							break
						}
						k++
					}
				}
			}
			for k < e && s[k] != d {
				k++
			}
			if c == col {
				cb, ce = start, k
			}
			c++
			k++
		}
		sc.head, sc.tabled = head0, b
		if c != n || cb < 0 {
			if rows == 0 {
				return false
			}
			break
		}
		for cb < ce && (isBlank(s[cb]) || s[cb] == '"' || s[cb] == '`' || s[cb] == '\'') {
			cb++
		}
		for ce > cb && (isBlank(s[ce-1]) || s[ce-1] == '"' || s[ce-1] == '`' || s[ce-1] == '\'' || s[ce-1] == '\r') {
			ce--
		}
		if v := s[cb:ce]; v != "" && (strings.IndexByte(v, ' ') < 0 || p.n.kind == phrase) && !(strings.Contains(head, ", ") && !passLike(v) && !randomish(v)) {
			if sc.judge(p, cb, ce, 0) {
				found = true
			}
		}
	}
	return found
}

// kubeAt: every value of a Kubernetes Secret's data and stringData.
func (sc *scan) kubeAt(start, end int) {
	s := sc.s
	if start < sc.kube {
		return
	}
	k := end
	if _, _, next := quoteAt(s, k); next > k {
		k = next
	}
	k = skipBlank(s, k)
	if at(s, k) != ':' {
		return
	}
	k = skipBlank(s, k+1)
	if _, _, next := quoteAt(s, k); next > k {
		k = next
	}
	if !strings.HasPrefix(s[k:], "Secret") || isWord(at(s, k+6)) {
		return
	}
	lo := max(sc.kube, start-8192)
	if x := strings.LastIndex(s[lo:start], "\n---"); x >= 0 {
		lo += x + 1
	}
	hi := min(len(s), end+32<<10)
	if x := strings.Index(s[end:hi], "kind"); x >= 0 && strings.IndexByte(":\"'\\", at(s, end+x+4)) >= 0 {
		hi = end + x
	}
	if x := strings.Index(s[end:hi], "\n---"); x >= 0 {
		hi = end + x
	}
	sc.kube = hi
	for _, key := range [...]string{"data", "stringData"} {
		for off := lo; off < hi; {
			x := strings.Index(s[off:hi], key)
			if x < 0 {
				break
			}
			x += off
			off = x + len(key)
			if isWord(at(s, x-1)) && !escapeBefore(s, x) || isWord(at(s, off)) {
				continue
			}
			m := off
			q, slashes, next := quoteAt(s, m)
			if q != 0 {
				m = next
			}
			m = skipBlank(s, m)
			if at(s, m) != ':' {
				continue
			}
			m = skipBlank(s, m+1)
			switch {
			case at(s, m) == '{':
				for m < hi && s[m] != '}' {
					if s[m] == ':' {
						v := m + 1
						for v < hi && isSpace(s[v]) {
							v++
						}
						if b, e, q, ok := sc.quoted(v); ok && e <= hi {
							if !isReference(s[b:e], q) {
								sc.hideValue(b, e, ruleKube)
							}
							m = e + slashes
						}
					}
					m++
				}
			case eol(s, m) >= 0:
				sc.kubeLines(x, eol(s, m), hi)
			}
		}
	}
}

// kubeLines hides the values of the YAML mapping under the key at x.
func (sc *scan) kubeLines(x, i, hi int) {
	s := sc.s
	indent := sc.indent(x)
	for i > 0 && i < hi {
		e := lineEnd(s, i)
		j := i
		if c := at(s, j); c == '+' || c == '-' || c == ' ' {
			j++
		}
		j = skipBlank(s, j)
		if j < e && j-i <= indent {
			return
		}
		if c := strings.IndexByte(s[j:e], ':'); c > 0 && j < e {
			v := skipBlank(s, j+c+1)
			p := place{begin: j, end: j + c, id: s[j : j+c], sep: colonS, n: name{grade: floor}}
			switch {
			case v >= e:
			case s[v] == '|' || s[v] == '>':
				sc.block(&p, v)
			default:
				if b, end, q, ok := sc.quoted(v); ok && end <= e {
					if !isReference(s[b:end], q) {
						sc.hideValue(b, end, ruleKube)
					}
				} else {
					end := e
					for end > v && isBlank(s[end-1]) {
						end--
					}
					if !isReference(s[v:end], 0) {
						sc.hideValue(v, end, ruleKube)
					}
				}
			}
		}
		i = eol(s, e)
	}
}

// jwkAt: the private members of a JSON Web Key.
func (sc *scan) jwkAt(start, end int) {
	if start < sc.jwk {
		return
	}
	s := sc.s
	b := start
	for b > sc.jwk && start-b < 4096 && s[b] != '{' {
		b--
	}
	sc.jwk = b
	for k := b; k < len(s) && k-b < 8192 && s[k] != '}'; k++ {
		sc.jwk = k
		if s[k] != '"' || k == 0 {
			continue
		}
		n := runOf(s, k+1, lower)
		w := s[k+1 : n]
		switch w {
		case "d", "p", "q", "dp", "dq", "qi", "k":
		default:
			continue
		}
		m := n
		for at(s, m) == '\\' {
			m++
		}
		if at(s, m) != '"' {
			continue
		}
		m = skipBlank(s, m+1)
		if at(s, m) != ':' {
			continue
		}
		if vb, ve, q, ok := sc.quoted(skipBlank(s, m+1)); ok && ve-vb >= 16 && !isReference(s[vb:ve], q) {
			sc.hideValue(vb, ve, ruleJWK)
			k = ve
		}
	}
}
