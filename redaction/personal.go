package redaction

import "strings"

// homes finds the paths of people's homes (rule c): the operator's own, and
// /home/x, /Users/x, C:\Users\x of anyone.
func homes(s string, own []string, out []span) []span {
	if strings.IndexByte(s, '/') < 0 && strings.IndexByte(s, '\\') < 0 && strings.IndexByte(s, '%') < 0 {
		return out // a home is a path
	}
	out = ownHome(s, own, out)
	for i := 0; ; {
		n := strings.Index(s[i:], "/home/")
		if n < 0 {
			break
		}
		i = anyHome(s, i+n, 6, &out)
	}
	for i := 0; ; {
		n := strings.Index(s[i:], "Users")
		if n < 0 {
			break
		}
		i += n
		if i > 0 && (s[i-1] == '/' || s[i-1] == '\\') && (at(s, i+5) == '/' || at(s, i+5) == '\\') {
			b := i - 1
			for b > 0 && s[b-1] == '\\' && s[b] == '\\' {
				b--
			}
			k := i + 5
			for at(s, k) == '\\' {
				k++
			}
			if at(s, k) == '/' {
				k++
			}
			i = anyHome(s, b, k-b, &out)
			continue
		}
		i += 5
	}
	// Some tools spell a directory as one name: /-home-alice-project.
	for _, lit := range [...]string{"/-home-", "/-Users-"} {
		for i := 0; ; {
			n := strings.Index(s[i:], lit)
			if n < 0 {
				break
			}
			i += n + len(lit)
			if e := runOf(s, i, word); e > i && (at(s, e) == '-' || at(s, e) == '/') {
				out = append(out, span{start: i - len(lit) + 1, end: e, rule: ruleHome})
			}
		}
	}
	if strings.IndexByte(s, '%') >= 0 {
		for _, lit := range [...]string{"%2Fhome%2F", "%2FUsers%2F", "%2fhome%2f", "%2fUsers%2f"} {
			for i := 0; ; {
				n := strings.Index(s[i:], lit)
				if n < 0 {
					break
				}
				i += n
				e := runOf(s, i+len(lit), word|dot|dash)
				if e > i+len(lit) {
					out = append(out, span{start: i, end: e, rule: ruleHome})
				}
				i = e
			}
		}
	}
	return out
}

// homeForms are the operator's home as it is spelt, and as some tools spell it
// in one name (-home-jane-).
func homeForms(home string) []string {
	if home == "" || home == "/" {
		return nil
	}
	forms := []string{home}
	if strings.IndexByte(home, '\\') >= 0 {
		forms = append(forms, strings.ReplaceAll(home, `\`, `\\`), strings.ReplaceAll(home, `\`, "/"))
	}
	if strings.Count(home, "/") > 1 {
		forms = append(forms, strings.ReplaceAll(home, "/", "-"))
	}
	return forms
}

func ownHome(s string, forms []string, out []span) []span {
	for n, f := range forms {
		for i := 0; ; {
			k := strings.Index(s[i:], f)
			if k < 0 {
				break
			}
			b, e := i+k, i+k+len(f)
			i = e
			if c := at(s, e); isWord(c) || c == '-' && n < 1 || c == '.' && isWord(at(s, e+1)) {
				continue
			}
			if c := at(s, b-1); isAlnum(c) && !escapeBefore(s, b) && !(b >= 2 && s[b-2] == '-') || n > 0 && c != '/' && c != '\\' && c != 0 {
				continue
			}
			out = append(out, span{start: b, end: e, rule: ruleHome})
		}
	}
	return out
}

// anyHome judges a home's prefix of n bytes at i.
func anyHome(s string, i, n int, out *[]span) int {
	u := i + n
	e := u
	for e < len(s) && (is(s[e], word|dot|dash) || s[e] >= 0x80 || s[e] == '+') {
		e++
	}
	for e > u && s[e-1] == '.' {
		e--
	}
	if e == u || s[u] == '.' || s[u:e] == "Shared" || s[u:e] == "Public" || s[u:e] == "linuxbrew" || at(s, u) == '.' && at(s, u+1) == '.' {
		return max(e, u)
	}
	if c := at(s, e); c == '*' || c == '}' || c == '>' || c == '$' {
		return e
	}
	b := i
	switch c := at(s, i-1); {
	case i == 0, !isWord(c) && c != '.' && c != '-' && c != '~' && c != '}' && c != '/':
	case escapeBefore(s, i):
	case c == '/' && (at(s, i-2) == '/' || at(s, i-2) == ':'): // file:///home/x
	case isLetter(c) && at(s, i-2) == '-' && !isWord(at(s, i-3)): // -I/home/x
	default:
		// /mnt/c/Users/x, /var/home/x, /System/Volumes/Data/Users/x
		k := i
		for k > 0 && i-k < 40 && (is(s[k-1], word|dash|dot) || s[k-1] == '/') {
			k--
		}
		switch s[k:i] {
		case "/mnt/c", "/c", "/mnt/d", "/d", "/var", "/export", "/usr", "/System/Volumes/Data", "/private", "/host", "/data", "/nfs", "/net", "/cygdrive/c", "/rootfs", "/mnt", "/volumes", "/hdd":
			b = k
		default:
			return e
		}
	}
	if b >= 2 && s[b-1] == ':' && isLetter(s[b-2]) && !isAlnum(at(s, b-3)) { // C:\Users\x
		b -= 2
	} else if b >= 2 && s[b-1] == ':' && isLetter(s[b-2]) && escapeBefore(s, b-2) {
		b -= 2
	}
	*out = append(*out, span{start: b, end: e, rule: ruleHome})
	return e
}

// emails finds addresses (rule d).
func emails(s string, out []span) []span {
	for i := 0; ; {
		n := strings.IndexByte(s[i:], '@')
		if n < 0 {
			break
		}
		i += n
		if b, e, ok := email(s, i, 1); ok {
			out = append(out, span{start: b, end: e, rule: ruleEmail})
			i = e
			continue
		}
		i++
	}
	for i := 0; ; {
		n := strings.Index(s[i:], "%40")
		if n < 0 {
			return out
		}
		i += n
		if b, e, ok := email(s, i, 3); ok {
			out = append(out, span{start: b, end: e, rule: ruleEmail})
		}
		i += 3
	}
}

func email(s string, i, n int) (b, e int, ok bool) {
	b = i
	for b > 0 && i-b < 65 {
		c := s[b-1]
		if isAlnum(c) && escapeBefore(s, b) {
			break
		}
		if isAlnum(c) || c >= 0x80 || strings.IndexByte("._+-'", c) >= 0 || strings.IndexByte("!#$&*/=?^{|}~`%", c) >= 0 && n == 1 && false {
			b--
			continue
		}
		break
	}
	if i-b >= 65 {
		return 0, 0, false
	}
	for b < i && strings.IndexByte(".'-+", s[b]) >= 0 {
		b++
	}
	if b == i || s[i-1] == '.' || at(s, b-1) == '$' {
		return 0, 0, false
	}
	e = i + n
	last := e
	labels := 0
	for e < len(s) && e-i < 255 {
		k := e
		for k < len(s) && (is(s[k], alnum|dash) || s[k] >= 0x80) {
			k++
		}
		if k == e {
			break
		}
		labels++
		last = e
		e = k
		if at(s, e) != '.' || !(isAlnum(at(s, e+1)) || at(s, e+1) >= 0x80) {
			break
		}
		e++
	}
	if e <= last || s[e-1] == '.' {
		e--
	}
	if labels < 2 {
		return 0, 0, false
	}
	for e > last && s[e-1] == '-' {
		e--
	}
	tld := s[last:e]
	if len(tld) < 2 || strings.ContainsAny(tld, "0123456789") && !strings.HasPrefix(tld, "xn--") {
		return 0, 0, false
	}
	if notTLD[strings.ToLower(tld)] {
		return 0, 0, false
	}
	domain := s[i+n : e]
	if isVersion(domain) || strings.HasPrefix(domain, "v") && isVersion(domain) {
		return 0, 0, false
	}
	local := s[b:i]
	switch c := at(s, e); {
	case c == ':' && (isLetter(at(s, e+1)) || at(s, e+1) == '/' || at(s, e+1) == '~' || at(s, e+1) == '_') && !isBlank(at(s, e+1)):
		// user@host:path, an address of rsync, scp or git
		return 0, 0, false
	case c == '(' || c == '=' && n == 1 && at(s, e+1) != '=' && false:
		return 0, 0, false
	case c == '/' && local == "git":
		return 0, 0, false
	}
	if local == "git" && (at(s, e) == ':' || at(s, e) == '/') {
		return 0, 0, false
	}
	if b >= 3 && s[b-3:b] == "://" || afterShell(s, b) {
		if b >= 3 && s[b-3:b] == "://" && !hasFold(s, b-9, "mailto://") && strings.IndexByte(local, '.') >= 0 {
			return b, e, true
		}
		return 0, 0, false
	}
	return b, e, true
}

var notTLD = set(`png jpg jpeg gif svg webp ico bmp js mjs cjs ts tsx jsx css scss less html htm json yml yaml toml xml txt log lock map
	service socket timer target mount path slice scope device swap gz tgz tar bz2 xz whl jar war deb rpm exe dll local_ internal_ sum mod
	test_ java class kt scala swift cpp hpp vue svelte wasm proto graphql sql ipynb csv tsv parquet avif mp3 mp4 wav pdf`)

// phones finds telephone numbers (rule d): written with a plus, or grouped as
// in North America, or after a word that says what they are.
func phones(s string, out []span) []span {
	for i := 0; i < len(s); {
		for i < len(s) && !phoneStart[s[i]] {
			i++
		}
		if i == len(s) {
			break
		}
		c := s[i]
		if !isDigit(c) {
			if c != '+' && c != '(' || !isDigit(at(s, i+1)) && !(c == '+' && at(s, i+1) == '(') {
				i++
				continue
			}
		}
		e, ok := phone(s, i)
		if ok {
			out = append(out, span{start: i, end: e, rule: rulePhone})
		}
		i = max(e, i+1)
	}
	return out
}

var phoneStart = [256]bool{'+': true, '(': true, '0': true, '1': true, '2': true, '3': true, '4': true, '5': true, '6': true, '7': true, '8': true, '9': true}

// phone judges the digits, blanks and signs at i: where they end, and whether
// they are a number to call.
func phone(s string, i int) (end int, ok bool) {
	digits, groups, dots := 0, 0, 0
	var sizes [8]int
	k := i
	plus := s[i] == '+'
	if plus {
		k++
	}
	paren := false
	seps := [4]int{} // blank, dash, dot, slash
	for k < len(s) && k-i < 40 {
		c := s[k]
		if isDigit(c) {
			j := runOf(s, k, digit)
			if groups < len(sizes) {
				sizes[groups] = j - k
			}
			groups++
			digits += j - k
			k = j
			end = k
			continue
		}
		switch {
		case c == ' ' && (isDigit(at(s, k+1)) || at(s, k+1) == '(' && isDigit(at(s, k+2))):
			seps[0]++
		case c == '-' && (isDigit(at(s, k+1)) || at(s, k+1) == '(' && isDigit(at(s, k+2))):
			seps[1]++
		case c == '.' && isDigit(at(s, k+1)):
			seps[2]++
			dots++
		case c == '(' && isDigit(at(s, k+1)) && (groups == 0 || groups == 1 && plus || groups == 1 && sizes[0] <= 3):
			paren = true
		case c == ')' && groups > 0 && paren:
			if n := at(s, k+1); n == ' ' || n == '-' || n == '.' {
				k++
			}
			if !isDigit(at(s, k+1)) {
				goto done
			}
		case c == '\u00a0'&0xff && strings.HasPrefix(s[k:], "\u00a0"):
			k++
		default:
			goto done
		}
		k++
	}
done:
	if end <= i {
		return i + 1, false
	}
	// Not inside a longer word, number, path or date.
	if b := at(s, i-1); b != 0 && (isWord(b) && !escapeBefore(s, i) || strings.IndexByte("-./:@#$%^&\\", b) >= 0 && !(b == ':' && !isDigit(at(s, i-2))) && !escapeBefore(s, i)) {
		if !(b == '-' && plus) {
			return end, false
		}
	}
	if c := at(s, end); c != 0 && (isWord(c) || (c == '-' || c == '/' || c == ':' || c == '@' || c == '%' || c == '#') && isAlnum(at(s, end+1)) || c == '.' && isAlnum(at(s, end+1)) || c == ',' && isDigit(at(s, end+1))) {
		// An extension is no reason against it.
		if !(c == 'x' && isDigit(at(s, end+1))) {
			return end, false
		}
	}
	g := min(groups, len(sizes))
	if groups > len(sizes) {
		return end, false
	}
	if digits < 7 || digits > 15 {
		return end, false
	}
	said := saysPhone(s, i)
	if plus {
		if digits < 8 || s[i+1] == '0' {
			return end, false
		}
		if (i == 0 || s[i-1] == '\n') && !paren && seps[0] == 0 && seps[1] == 0 && diffLike(s, i) || groups == 4 && dots == 3 {
			return end, false // a line that was added; an address
		}
		if groups == 1 {
			if digits < 10 && !said {
				return end, false
			}
			if unitAfter(s, end) {
				return end, said
			}
			return end, true
		}
		if dots == 1 && groups == 2 { // +40.7127, a coordinate
			return end, sizes[0] <= 3 && sizes[1] >= 9 && false
		}
		if groups == 2 && sizes[1] < 6 && sizes[0] > 3 {
			return end, said
		}
		return end, sizes[0] <= 4 || paren
	}
	if said && dots < 3 && !(groups == 3 && sizes[0] == 4 && sizes[1] == 2 && sizes[2] == 2) {
		return end, !(dots == 1 && groups == 2)
	}
	kinds := 0
	for _, n := range seps {
		if n > 0 {
			kinds++
		}
	}
	// North America: (555) 123-4567, 555-123-4567, 555.123.4567, 1-555-123-4567.
	switch {
	case g == 3 && sizes[0] == 3 && sizes[1] == 3 && sizes[2] == 4:
		if paren {
			return end, true
		}
		if seps[1] == 2 || seps[2] == 2 {
			return end, s[i] >= '2'
		}
		if seps[0] == 1 && seps[1] == 1 {
			return end, s[i] >= '2'
		}
		return end, false
	case g == 4 && sizes[0] == 1 && s[i] == '1' && sizes[1] == 3 && sizes[2] == 3 && sizes[3] == 4:
		return end, seps[1] >= 2 || paren || seps[2] == 3
	case g == 2 && paren && sizes[0] == 3 && sizes[1] == 7:
		return end, true
	}
	return end, false
}

// saysPhone: a word right before i says that a telephone number follows.
func saysPhone(s string, i int) bool {
	b := max(0, i-24)
	w := strings.ToLower(s[b:i])
	if k := strings.LastIndexByte(w, '\n'); k >= 0 {
		w = w[k+1:]
	}
	for _, p := range [...]string{"phone", "tel:", "tel.", "tel ", "telephone", "mobile", "cell:", "cell ", "fax", "whatsapp", "call ", "call me at ", "dial ", "sms to", "text me", "handy:", "telefon", "rufnummer", "msisdn"} {
		k := strings.LastIndex(w, p)
		if k < 0 || k > 0 && isAlnum(w[k-1]) && w[k-1] != '_' {
			continue
		}
		between := strings.Trim(w[k+len(p):], " :=\"'(")
		switch between {
		case "", "number", "no", "no.", "nr", "at", "on", "is", "me at", "number is", "us at", "number:", "number\":", "\":", "me on", "us on", "_number", "number\": \"":
			return true
		}
		if strings.Trim(between, "_-:\"'= \\numbero.") == "" {
			return true
		}
	}
	return false
}

// diffLike: the lines next to i begin with a diff's signs.
func diffLike(s string, i int) bool {
	e := lineEndIn(s, i, 200)
	if e+1 < len(s) && (s[e+1] == '+' || s[e+1] == '-' || s[e+1] == '@') {
		return true
	}
	if i > 1 {
		b := lineStart(s, i-1, 200)
		return s[b] == '+' || s[b] == '-' || s[b] == '@'
	}
	return false
}

func unitAfter(s string, i int) bool {
	i = skipBlank(s, i)
	for _, u := range [...]string{"bytes", "byte", "ms", "ns", "us ", "kb", "mb", "gb", "b ", "tokens", "rows", "lines", "insertions", "deletions", "items"} {
		if hasFold(s, i, u) {
			return true
		}
	}
	return false
}

// afterShell: the address of a login stands at i: ssh bob@host.
func afterShell(s string, i int) bool {
	for _, c := range [...]string{"ssh ", "ssh -T ", "sftp ", "mosh "} {
		if b := i - len(c); b >= 0 && s[b:i] == c && !isWord(at(s, b-1)) {
			return true
		}
	}
	return false
}
