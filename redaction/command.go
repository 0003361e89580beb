package redaction

import "strings"

// token is a word of a command line.
type token struct {
	start, end int  // as it stands in the text, less the quotes around it
	q          byte // the quote, or 0
}

// take says what an option's argument, or an operand, holds.
type take uint8

const (
	secretArg  take = iota + 1 // all of it
	eitherWay                  // all of it, also as -pSECRET whatever it looks like
	userColon                  // user:password, or a token
	userComma                  // user,password
	userPct                    // user%password
	userSlash                  // user/password@db
	cookieArg                  // a=b; c=d
	glued                      // all of it, and only as -pSECRET
	opensslArg                 // pass:x
	certColon                  // file:password
)

// command is a program that takes credentials in ways that no name tells.
type command struct {
	names   []string
	when    string          // a word that must stand among the command's, or the options mean something else
	options map[string]take // "-u", "--user"
	// operands of a subcommand: after these words, the n-th word that is no
	// option is a secret (counted from 1).
	after []operand
}

type operand struct {
	words string // the subcommand; "" the command itself
	n     int    // 0: the last
	needs string // an option that must stand among the words
	hints string // one of these must be part of a word
	take  take
}

var commands = []command{
	{names: []string{"curl", "curl.exe"}, options: map[string]take{"-u": userColon, "--user": userColon, "-U": userColon, "--proxy-user": userColon, "-b": cookieArg, "--cookie": cookieArg, "--oauth2-bearer": secretArg, "--pass": secretArg, "--proxy-pass": secretArg, "--tlspassword": secretArg, "-E": certColon, "--cert": certColon}},
	{names: []string{"http", "https", "xh", "httpie"}, options: map[string]take{"-a": userColon, "--auth": userColon}},
	{names: []string{"mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump", "mysqlimport", "mycli", "mysqlsh"}, options: map[string]take{"-p": glued}},
	{names: []string{"sshpass"}, options: map[string]take{"-p": eitherWay}},
	{names: []string{"docker", "podman", "nerdctl", "buildah", "skopeo", "helm", "oras", "crane", "az", "cf", "oc"}, when: "login", options: map[string]take{"-p": secretArg}},
	{names: []string{"podman", "buildah", "skopeo"}, options: map[string]take{"--creds": userColon, "--src-creds": userColon, "--dest-creds": userColon}},
	{names: []string{"redis-cli", "keydb-cli", "valkey-cli"}, options: map[string]take{"-a": secretArg, "--pass": secretArg}, after: []operand{{words: "auth", n: 1, take: secretArg}}},
	{names: []string{"mongo", "mongosh", "mongodump", "mongorestore", "mongoexport", "mongoimport"}, options: map[string]take{"-p": secretArg}},
	{names: []string{"sqlcmd", "bcp", "osql", "isql"}, options: map[string]take{"-P": secretArg}},
	{names: []string{"sqlplus", "sqlldr", "expdp", "impdp", "rman"}, after: []operand{{n: 1, take: userSlash}}},
	{names: []string{"htpasswd"}, after: []operand{{n: 0, needs: "b", take: secretArg}}},
	{names: []string{"openssl"}, options: map[string]take{"-passin": opensslArg, "-passout": opensslArg, "-pass": opensslArg, "-k": secretArg, "-K": secretArg, "-password": opensslArg, "-macopt": opensslArg, "-hmac": secretArg}},
	{names: []string{"zip", "unzip", "zipcloak"}, options: map[string]take{"-P": secretArg}},
	{names: []string{"7z", "7za", "7zr", "7zz", "rar", "unrar"}, options: map[string]take{"-p": glued, "-hp": glued}},
	{names: []string{"gpg", "gpg2"}, options: map[string]take{"--passphrase": secretArg}},
	{names: []string{"ssh-keygen"}, options: map[string]take{"-N": secretArg, "-P": secretArg}},
	{names: []string{"ldapsearch", "ldapadd", "ldapmodify", "ldapdelete", "ldappasswd", "ldapwhoami"}, options: map[string]take{"-w": secretArg}},
	{names: []string{"smbclient", "rpcclient", "smbget", "smbmap", "net"}, options: map[string]take{"-U": userPct, "--user": userPct}, after: []operand{{words: "user", n: 2, take: secretArg}, {words: "use", take: secretArg}}},
	{names: []string{"etcdctl"}, options: map[string]take{"--user": userColon}},
	{names: []string{"lftp"}, options: map[string]take{"-u": userComma}},
	{names: []string{"wpa_passphrase"}, after: []operand{{n: 2, take: secretArg}}},
	{names: []string{"rabbitmqctl", "rabbitmqadmin"}, after: []operand{{words: "add_user", n: 2, take: secretArg}, {words: "change_password", n: 2, take: secretArg}, {words: "authenticate_user", n: 2, take: secretArg}}},
	{names: []string{"useradd", "usermod", "adduser"}, options: map[string]take{"-p": secretArg}},
	{names: []string{"ipmitool"}, options: map[string]take{"-P": secretArg}},
	{names: []string{"snmpwalk", "snmpget", "snmpset", "snmpbulkwalk"}, options: map[string]take{"-c": secretArg, "-A": secretArg, "-X": secretArg}},
	{names: []string{"xfreerdp", "rdesktop", "wlfreerdp"}, options: map[string]take{"-p": secretArg}},
	{names: []string{"clickhouse-client", "influx", "couchbase-cli", "cypher-shell", "vsql", "snowsql", "beeline", "cqlsh", "nzsql", "ncftp", "ncftpget"}, options: map[string]take{"-p": secretArg}},
	{names: []string{"vault"}, after: []operand{{words: "login", n: 1, take: secretArg}, {words: "unseal", n: 1, take: secretArg}}},
	{names: []string{"npm", "yarn", "pnpm"}, after: []operand{{words: "token revoke", n: 1, take: secretArg}}},
	{names: []string{"composer", "poetry"}, after: []operand{{words: "config", hints: "token oauth http-basic bearer", take: secretArg}}},
	{names: []string{"bundle"}, after: []operand{{words: "config", take: userColon}}},
	{names: []string{"cargo"}, after: []operand{{words: "login", n: 1, take: secretArg}}},
	{names: []string{"dotnet"}, when: "push", options: map[string]take{"-k": secretArg}},
	{names: []string{"nuget", "nuget.exe"}, after: []operand{{words: "setapikey", n: 1, take: secretArg}}},
	{names: []string{"twine"}, when: "upload", options: map[string]take{"-p": secretArg}},
	{names: []string{"aws"}, when: "SecureString", options: map[string]take{"--value": secretArg}},
	{names: []string{"ansible-vault"}, after: []operand{{words: "encrypt_string", n: 1, take: secretArg}}},
	{names: []string{"ngrok"}, after: []operand{{words: "authtoken", n: 1, take: secretArg}, {words: "add-authtoken", n: 1, take: secretArg}}},
	{names: []string{"gh", "glab"}, options: map[string]take{"-b": secretArg}},
	{names: []string{"psexec", "psexec.exe", "psexec64.exe"}, options: map[string]take{"-p": secretArg}},
	{names: []string{"requirepass", "masterauth"}, after: []operand{{n: 1, take: secretArg}}},
	{names: []string{"convertto-securestring"}, after: []operand{{n: 1, take: secretArg}}, options: map[string]take{"-String": secretArg, "-string": secretArg}},
	{names: []string{"crackmapexec", "nxc", "netexec", "evil-winrm"}, options: map[string]take{"-p": secretArg, "-H": secretArg}},
	{names: []string{"tailscale"}, options: map[string]take{"--authkey": secretArg, "--auth-key": secretArg}},
	{names: []string{"cmdkey", "cmdkey.exe"}, options: map[string]take{"/pass": secretArg}},
}

func commandTriggers() []trigger {
	var all []trigger
	for i := range commands {
		c := &commands[i]
		if c.options == nil && c.after == nil {
			continue
		}
		for _, n := range c.names {
			all = append(all, trigger{n, func(sc *scan, start, end int) { sc.commandAt(c, start, end) }})
		}
	}
	return all
}

// commandAt: a program's name stands at start; its words are read.
func (sc *scan) commandAt(c *command, start, end int) {
	s := sc.s
	if end >= len(s) {
		return
	}
	// A program's name is a word of its own, or the last part of a path.
	if b := at(s, start-1); b != 0 && (isWord(b) && !escapeBefore(s, start) || b == '-' || b == '.' || b == '@' || b == '=' || b == '$') {
		return
	}
	switch at(s, end) {
	case ' ', '\t', '"', '\'':
	default:
		return
	}
	if q := at(s, end); q == '"' || q == '\'' { // ["curl", "-u", …]
		if at(s, start-1) != q || at(s, end+1) != ',' {
			return
		}
	}
	// Commands stand in commands (ssh h mysql -p…), but not without end.
	if start < sc.line {
		if sc.nested++; sc.nested > 8 {
			return
		}
	} else {
		sc.nested = 0
	}
	sc.tokens(start)
	t := sc.toks
	if len(t) < 2 {
		return
	}
	sc.line = max(sc.line, t[len(t)-1].end)
	if c.when != "" {
		found := false
		for _, x := range t {
			found = found || s[x.start:x.end] == c.when
		}
		if !found {
			return
		}
	}
	for i := 1; i < len(t); i++ {
		w := s[t[i].start:t[i].end]
		if w == "" || w[0] != '-' && !(w[0] == '/' && c.options["/pass"] != 0) {
			continue
		}
		name, value, has := strings.Cut(w, "=")
		if strings.HasPrefix(w, "/") {
			name, value, has = strings.Cut(w, ":")
		}
		if k, ok := c.options[name]; ok && k != glued {
			if has {
				sc.take(k, t[i].end-len(value), t[i].end, t[i].q)
			} else if i+1 < len(t) {
				if n := t[i+1]; n.end > n.start && (s[n.start] != '-' || n.q != 0) {
					sc.take(k, n.start, n.end, n.q)
				}
				i++
			}
			continue
		}
		// -pSECRET, -uuser:pass: an option of one letter with its argument
		// glued on.
		if len(w) > 2 && w[1] != '-' {
			for n := 2; n <= 3 && n < len(w); n++ {
				k, ok := c.options[w[:n]]
				if !ok || k == secretArg && len(w)-n < 4 && n == 2 && t[i].q == 0 || w[n] == '=' || k == opensslArg || k == certColon {
					continue
				}
				if c.options["-p"] == secretArg && k == secretArg && (w[n] == 'r' && strings.HasPrefix(w, "-progress") || isDigit(w[n]) && strings.IndexByte(w, ':') > 0) {
					continue
				}
				b := t[i].start + n
				e := t[i].end
				if q, m, _ := quoteAt(s, b); q != 0 && m > 0 { // -p\"x y\" inside a string
					if bb, ee, q, ok := sc.quoted(b); ok {
						sc.take(k, bb, ee, q)
					}
					break
				}
				if (s[b] == '"' || s[b] == '\'') && e > b+1 {
					q := s[b]
					b++
					if s[e-1] == q {
						e--
					}
				}
				if k == secretArg && runOf(w, 1, lower) == len(w) {
					break // -keyout and the like are names of their own
				}
				sc.take(k, b, e, t[i].q)
				break
			}
		}
	}
	for _, o := range c.after {
		sc.operand(t, o)
	}
}

func (sc *scan) operand(t []token, o operand) {
	s := sc.s
	i := 1
	for _, w := range strings.Fields(o.words) {
		for i < len(t) && !strings.EqualFold(s[t[i].start:t[i].end], w) {
			i++
		}
		if i == len(t) {
			return
		}
		i++
	}
	if o.needs != "" {
		ok := false
		for _, x := range t[1:] {
			w := s[x.start:x.end]
			ok = ok || len(w) > 1 && w[0] == '-' && w[1] != '-' && strings.Contains(w, o.needs)
		}
		if !ok {
			return
		}
	}
	if o.hints != "" {
		ok := false
		for _, x := range t[1:] {
			for h := range strings.FieldsSeq(o.hints) {
				ok = ok || strings.Contains(s[x.start:x.end], h)
			}
		}
		if !ok {
			return
		}
	}
	n := 0
	for ; i < len(t); i++ {
		w := s[t[i].start:t[i].end]
		if w == "" || w[0] == '-' && t[i].q == 0 || w[0] == '/' && o.take != userSlash {
			continue
		}
		n++
		if o.n == n || o.n == 0 && n >= 2 && lastOperand(s, t[i+1:]) {
			sc.take(o.take, t[i].start, t[i].end, t[i].q)
			return
		}
	}
}

// lastOperand: only options follow.
func lastOperand(s string, rest []token) bool {
	for _, x := range rest {
		if x.end > x.start && s[x.start] != '-' {
			return false
		}
	}
	return true
}

// take hides what an argument holds.
func (sc *scan) take(k take, start, end int, q byte) {
	v := sc.s[start:end]
	if v == "" || isReference(v, q) || strings.HasPrefix(v, "$(") || strings.HasPrefix(v, "\"$") || v[0] == '`' {
		return
	}
	cut := byte(0)
	switch k {
	case userColon:
		cut = ':'
	case userComma:
		cut = ','
	case userPct:
		cut = '%'
	case certColon:
		if c := strings.LastIndexByte(v, ':'); c > 1 && c+1 < len(v) {
			sc.hideValue(start+c+1, end, ruleCommand)
		}
		return
	case userSlash:
		c := strings.IndexByte(v, '/')
		if c < 1 {
			return
		}
		e := strings.LastIndexByte(v, '@')
		if e < c {
			e = len(v)
		}
		if pw := v[c+1 : e]; pw != "" && !isReference(pw, 0) {
			sc.hideValue(start+c+1, start+e, ruleCommand)
		}
		return
	case cookieArg:
		if strings.IndexByte(v, '=') > 0 {
			sc.cookieText(&place{closed: true}, start, end)
		}
		return
	case opensslArg:
		head, pw, ok := strings.Cut(v, ":")
		if ok && (head == "pass" || head == "key" || head == "hexkey") && pw != "" && !isReference(pw, 0) {
			sc.hideValue(end-len(pw), end, ruleCommand)
		}
		return
	}
	if cut != 0 {
		c := strings.IndexByte(v, cut)
		if c < 0 {
			if randomish(v) && len(v) >= 20 {
				sc.hideValue(start, end, ruleCommand)
			}
			return
		}
		pw := v[c+1:]
		if pw == "" || isReference(pw, q) {
			if u := v[:c]; pw == "" && randomish(u) && len(u) >= 16 {
				sc.hideValue(start, start+c, ruleCommand)
			}
			return
		}
		sc.hideValue(start+c+1, end, ruleCommand)
		if u := v[:c]; randomish(u) && len(u) >= 20 {
			sc.hideValue(start, start+c, ruleCommand)
		}
		return
	}
	if strings.HasPrefix(v, `\\`) {
		return // a share's name
	}
	if k == glued || k == eitherWay {
		sc.hideValue(start, end, ruleCommand)
		return
	}
	if isPath(v) && q == 0 || runOf(v, 0, digit) == len(v) && (len(v) < 4 || len(v) == 4 && q == 0) || runOf(v, 0, digit|colon) == len(v) && strings.IndexByte(v, ':') > 0 {
		return // ports
	}
	if c := strings.IndexByte(v, ':'); c > 0 && runOf(v, c+1, digit|colon|plusSlash|lower) == len(v) && isDigit(at(v, c+1)) && isDigit(v[0]) {
		return // 127.0.0.1:8080:80, 8080:80/tcp
	}
	sc.hideValue(start, end, ruleCommand)
}

// tokens splits the command line that begins at i into words, up to the end of
// the command: a line's end, ; | & or the quote around it. A JSON array of
// words is read as the line that it spells.
func (sc *scan) tokens(i int) {
	s := sc.s
	sc.toks = sc.toks[:0]
	// The quote that the whole command stands in, if it does.
	outer, outerSlashes := byte(0), 0
	array := false
	if c := at(s, i-1); c == '"' || c == '\'' {
		outer = c
		for k := i - 2; k >= 0 && s[k] == '\\'; k-- {
			outerSlashes++
		}
		e := runOf(s, i, alnum|dot|dash)
		array = at(s, e+outerSlashes) == outer
	}
	limit := min(len(s), i+4096)
	for k := i; k < limit && len(sc.toks) < 96; {
		for k < limit && isBlank(s[k]) {
			k++
		}
		if k >= limit {
			return
		}
		switch c := s[k]; c {
		case '\n', '\r', ';', '|', '&', ')', '>', '<':
			return
		case ',', ':', '[':
			if !array {
				if c == ',' {
					return
				}
				break
			}
			k++
			for k < limit && isSpace(s[k]) {
				k++
			}
			continue
		case ']':
			if array {
				return
			}
		case '\\':
			if e := eol(s, k); e >= 0 {
				if at(s, k+1) == 'n' || at(s, k+1) == 'r' && at(s, k+2) == '\\' {
					return
				}
				k = e
				continue
			}
		case '`':
			return
		}
		start := k
		if q, n, next := quoteAt(s, k); q != 0 && !(q == outer && n == outerSlashes && !array) {
			if b, e, q, ok := sc.quoted(k); ok {
				end := e
				sc.toks = append(sc.toks, token{b, end, q})
				k = e + n + 1
				_ = next
				continue
			}
		}
		if array { // the first word, whose quote was read already
			e := runOf(s, k, alnum|dot|dash)
			sc.toks = append(sc.toks, token{k, e, 0})
			k = e + outerSlashes + 1
			if e == start {
				return
			}
			continue
		}
		// A bare word, with quoted pieces in it.
	word:
		for k < limit {
			switch c := s[k]; c {
			case ' ', '\t', '\n', '\r', ';', '|', ')':
				break word
			case '&', '>', '<':
				if c != '&' || at(s, k+1) == '&' || k+1 >= len(s) || isSpace(s[k+1]) {
					break word
				}
				k++
			case '\\':
				q, n, next := quoteAt(s, k)
				if q != 0 && q == outer && n == outerSlashes {
					break word
				}
				if q != 0 {
					if closes(s, next-1) && k > start {
						break word
					}
					k = next
					continue
				}
				if eol(s, k) >= 0 {
					break word
				}
				k += 2
			case '"', '\'':
				if c == outer && outerSlashes == 0 {
					break word
				}
				// A quoted piece, if it closes on this line.
				e := strings.IndexByte(s[k+1:lineEndIn(s, k, 512)], c)
				if e < 0 || outer == 0 && closes(s, k) && k > start && s[k-1] != '=' && s[k-1] != ':' && !(k-start == 2) {
					break word
				}
				k += e + 2
			default:
				k++
			}
		}
		k = min(k, limit)
		if k == start {
			return
		}
		sc.toks = append(sc.toks, token{start, k, 0})
		if at(s, k) == outer && outer != 0 || at(s, k) == '\\' && outer != 0 {
			return
		}
		if c := at(s, k); c == '"' || c == '\'' {
			return
		}
	}
}

func skipBlankBack(s string, i int) int {
	for i > 0 && isBlank(s[i-1]) {
		i--
	}
	return i
}

// stdinAt: the secret is given on standard input: echo x | docker login
// --password-stdin, … <<< x, a here-document.
func (sc *scan) stdinAt(start, end int) {
	s := sc.s
	if !edge(s, start) && at(s, start-1) != '-' {
		return
	}
	lineE := lineEndIn(s, end, 512)
	encoded := s[start:end] == "base64" // only user:password is one
	if encoded && at(s, skipBlankBack(s, start)-1) != '|' {
		return
	}
	// … <<< 'x'
	if k := strings.Index(s[end:lineE], "<<<"); k >= 0 && !encoded {
		k = skipBlank(s, end+k+3)
		if b, e, q, ok := sc.quoted(k); ok {
			if !isReference(s[b:e], q) {
				sc.hideValue(b, e, ruleStdin)
			}
		} else if e := runOf(s, k, tokenish|colon); e > k && !isReference(s[k:e], 0) {
			sc.hideValue(k, e, ruleStdin)
		}
		return
	}
	if k := strings.Index(s[end:lineE], "<<"); k >= 0 && !encoded {
		k = skipBlank(s, end+k+2)
		if at(s, k) == '-' {
			k++
		}
		k = skipBlank(s, k)
		q := at(s, k)
		if q == '\'' || q == '"' {
			k++
		}
		e := runOf(s, k, word)
		tag := s[k:e]
		if n := eol(s, lineEnd(s, e)); tag != "" && n > 0 {
			for n > 0 && n < len(s) && n-e < 4096 {
				le := lineEnd(s, n)
				t := strings.TrimSpace(s[n:le])
				if t == tag {
					break
				}
				if t != "" && !isReference(t, 0) {
					b := n + strings.Index(s[n:le], t)
					if c := strings.IndexByte(t, ':'); c > 0 && s[start:end] == "chpasswd" {
						b += c + 1
					}
					sc.hideValue(b, n+strings.Index(s[n:le], t)+len(t), ruleStdin)
				}
				n = eol(s, le)
			}
		}
		return
	}
	// echo x | …
	b := start
	for b > 0 && start-b < 400 && s[b-1] != '\n' && s[b-1] != ';' {
		if s[b-1] == '&' && b > 1 && s[b-2] == '&' {
			break
		}
		b--
	}
	seg := s[b:start]
	bar := strings.LastIndexByte(seg, '|')
	if bar < 0 {
		return
	}
	prev := seg[:bar]
	if k := strings.LastIndexByte(prev, '|'); k >= 0 {
		b += k + 1
		prev = prev[k+1:]
	}
	for _, verb := range [...]string{"echo ", "printf ", "print "} {
		k := strings.LastIndex(prev, verb)
		if k < 0 || k > 0 && isWord(prev[k-1]) {
			continue
		}
		i := b + k + len(verb)
		stop := b + len(prev)
		for i < stop {
			i = skipBlank(s, i)
			if i >= stop {
				return
			}
			if s[i] == '-' && i+2 <= stop && isLetter(at(s, i+1)) {
				i = runOf(s, i, lower|upper|dash)
				continue
			}
			start, end, q := i, 0, byte(0)
			if bb, ee, qq, ok := sc.quoted(i); ok && ee <= stop {
				start, end, q = bb, ee, qq
				i = ee + 1
				for i < stop && (s[i] == '\\' || s[i] == q) {
					i++
				}
			} else {
				for i < stop && !isBlank(s[i]) {
					i++
				}
				end = i
			}
			v := s[start:end]
			if v == "" || isReference(v, q) || strings.Contains(v, "%s") || strings.HasPrefix(v, "$") && q != '\'' || strings.HasPrefix(v, "`") {
				continue
			}
			if c := strings.IndexByte(v, ':'); encoded && (c < 1 || c == len(v)-1 || strings.IndexByte(v, ' ') >= 0 || isURL(v)) {
				continue
			} else if c > 0 && (encoded || strings.Contains(s[b:lineE], "chpasswd")) {
				if isReference(v[c+1:], q) {
					continue
				}
				start += c + 1
			}
			sc.hideValue(start, end, ruleStdin)
		}
		return
	}
}
