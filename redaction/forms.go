package redaction

import "strings"

// Markers stand where something was hidden.
const (
	SecretMarker = "[REDACTED:secret]"
	PIIMarker    = "[REDACTED:pii]"
)

// The words below are not values: what stands there says that there is none,
// or where it is.
var (
	literals = set(`true false null nil none undefined nan yes no on off enabled disabled unset empty void optional required
		missing invalid valid expired incorrect wrong denied rejected revoked refused unknown unspecified unavailable not
		n/a na tbd todo fixme hidden redacted masked omitted removed protected encrypted unexpected expected unable unsupported malformed got want eof changed unchanged updated
		rotated created generated deleted refreshed accepted verified failed success ok set present absent found default
		pass passed fail skipped error errors string str text bool boolean int integer number float double bytes byte char object
		array any buffer uint8array date unknown never symbol bigint varchar secretstr securestring hash dict list tuple map struct
		pass-through include omit same-origin basic bearer digest oauth oauth2 jwt inherit auto manual interactive prompt stdin ask
		redacted: readonly writeonly private public protected write read compat files nis ldap systemd sss`)
	// codeWords begin an expression in some language.
	codeWords = set(`iota range return await new function async self this if else yield throw import require typeof not lambda let const
		var val def func fn static final await: delete instanceof sizeof case switch for while try match select from where
		and or`)
	// proseWords do not begin a value; one of them as the first word makes
	// what follows a sentence.
	proseWords = set(`a an the this that these those it its he she they we you i your our my their his her to of in on at by for
		from with without within as is are was were be been being am has have had do does did can could may might must shall
		should will would cannot can't don't doesn't didn't isn't aren't won't not no never always only also just when where why
		who whom whose what which how if then than so because since while until unless and or nor but either neither both
		each every all any some such same other another more most less least many much few several please use uses used using
		see enter type choose provide specify specified provided given make ensure check contains contain containing include
		includes including need needs needed requires allow allows allowed about after before during between into over under
		again here there now already still yet too very field fields flag flags option options argument arguments parameter
		parameters value values header headers variable variables file files name names count length length: size limit usage
		based authentication authorization auth login manager management rotation policy policies reset expiry expiration
		expires expire refresh validation verification protection strength change changes hashing storage support`)
	// refHeads begin a dotted path that is an expression, not a value.
	refHeads = set(`self this config cfg conf req request res resp response options opts opt args arg params param env environ process
		os sys settings setting ctx context data body user props state event e err input form values val secrets vars var
		local locals module each inputs outputs github matrix steps needs runner secret token credentials creds cred auth session
		client app server account payload result json query headers import meta my obj o p s c r t m d u a row item entry
		record flags cli argv yargs program constants const keys vault ssm ansible node spring system environment
		window document localstorage sessionstorage store api db kwargs cls super base test fixture mock window_`)
)

// isReference says that v, written where a value is expected, names a value
// or says that there is none. quoted: v stood in quotes (q).
func isReference(v string, q byte) bool {
	n := len(v)
	if n == 0 {
		return true
	}
	if strings.HasPrefix(v, "[REDACTED") || strings.HasPrefix(v, "[redacted") {
		return true
	}
	if isMask(v) {
		return true
	}
	if isLiteral(v) {
		return true
	}
	switch v[0] {
	case '$':
		return isVariable(v, q)
	case '%':
		return n > 2 && v[n-1] == '%' && runOf(v, 1, word) == n-1 || isFormatVerb(v)
	case '<':
		return n > 2 && (q != 0 && isLetter(v[1]) && strings.IndexByte(v, '>') < 0 && strings.IndexByte(v, ' ') > 0 || v[n-1] == '>' || v[1] == '/' || isLetter(v[1]) && strings.IndexByte(v, '>') > 0) && !strings.ContainsAny(v, "@!")
	case '{':
		return n > 2 && v[n-1] == '}'
	case '!':
		if n > 1 && v[1] == '$' {
			return true
		}
		return runOf(v, 1, word|dot|dash) == n && (hasFold(v, 1, "secret") || hasFold(v, 1, "vault") || hasFold(v, 1, "ref") || hasFold(v, 1, "sub") || hasFold(v, 1, "getatt") || hasFold(v, 1, "env") || hasFold(v, 1, "importvalue"))
	case '`':
		return n > 2 && v[n-1] == '`' && q == 0
	case '&':
		return q == 0 && n > 1 && isLetter(v[1]) && runOf(v, 1, word) == n
	case '*':
		return q == 0 && n > 1 && isLetter(v[1]) && runOf(v, 1, lower|under) == n
	case '_':
		// __PLACEHOLDER__
		return n > 4 && v[1] == '_' && v[n-1] == '_' && v[n-2] == '_' && runOf(v, 0, upper|under) == n
	}
	for _, p := range [...]string{"op://", "vault:", "arn:aws", "env:", "env://", "sm://", "gcp-secret", "awssm:", "ssm:", "keyring:", "secretref:", "secretkeyref", "file://", "file:/", "@microsoft.keyvault(", "ref+", "enc[", "env.", "process.env", "os.environ", "os.getenv", "system.getenv", "import.meta", "secrets.", "${", "projects/"} {
		if hasFold(v, 0, p) {
			return true
		}
	}
	if q == '`' || q == '"' || q == '\'' {
		if i := strings.Index(v, "${"); i >= 0 && i <= 8 && v[n-1] == '}' && runOf(v, 0, lower|upper|space) == i { // `Basic ${x}`
			return true
		}
	}
	return isPlaceholder(v)
}

func isLiteral(v string) bool {
	if len(v) > 16 {
		return false
	}
	var b [16]byte
	for i := range len(v) {
		b[i] = lowerByte(v[i])
	}
	return literals[string(b[:len(v)])]
}

func inFold(m map[string]bool, v string) bool {
	if len(v) > 24 {
		return false
	}
	var b [24]byte
	for i := range len(v) {
		b[i] = lowerByte(v[i])
	}
	return m[string(b[:len(v)])]
}

// isMask: ***, ••••, xxxx, …, ------, also with a few last characters shown.
func isMask(v string) bool {
	stars, other := 0, 0
	for _, r := range v {
		switch r {
		case '*', '•', '●', '·', '…', '█':
			stars++
		case '.', '-', '_', '?', '#':
			// alone they are no value either
		case ' ':
		default:
			other++
		}
	}
	if other == 0 {
		return true
	}
	if stars >= 3 && other <= 4 {
		return true
	}
	return len(v) >= 3 && (strings.Count(v, "x") == len(v) || strings.Count(v, "X") == len(v))
}

// isVariable: $VAR, ${VAR}, $(cmd), ${{ expr }}, $env:VAR and nothing else.
func isVariable(v string, q byte) bool {
	n := len(v)
	if n < 2 {
		return true
	}
	switch v[1] {
	case '{':
		return v[n-1] == '}'
	case '(':
		return v[n-1] == ')' || q == 0
	}
	if hasFold(v, 1, "env:") {
		return true
	}
	if !isLetter(v[1]) && v[1] != '_' {
		return n == 2 && isDigit(v[1])
	}
	i := runOf(v, 1, word)
	for i < n { // $a->b['c'], $cfg.token, $x[0]
		switch {
		case v[i] == '.' || v[i] == ':':
			i++
		case strings.HasPrefix(v[i:], "->"):
			i += 2
		case v[i] == '[':
			j := strings.IndexByte(v[i:], ']')
			if j < 0 {
				return false
			}
			i += j + 1
			continue
		case v[i] == '(' && v[n-1] == ')':
			return true
		default:
			return false
		}
		j := runOf(v, i, word)
		if j == i {
			return i == n
		}
		i = j
	}
	// In single quotes a shell expands nothing: only what is written as a
	// variable is one.
	return q != '\'' || runOf(v, 1, upper|digit|under) == n || runOf(v, 1, lower|digit|under) == n && strings.IndexByte(v, '_') > 0
}

func isFormatVerb(v string) bool {
	i := 1
	for i < len(v) && strings.IndexByte("#+ -0123456789.*[]", v[i]) >= 0 {
		i++
	}
	return i == len(v)-1 && strings.IndexByte("svdqxXrtpfiweTubcgG", v[i]) >= 0 || strings.HasPrefix(v, "%(") && strings.HasSuffix(v, ")s")
}

// isPlaceholder: your-token-here, YOUR_API_KEY, replace_me, <…>, insert…
func isPlaceholder(v string) bool {
	if len(v) > 64 {
		return false
	}
	for i := 0; i+4 < len(v); i++ {
		if !isLetter(v[i]) || i > 0 && isAlnum(v[i-1]) {
			continue
		}
		if hasFold(v, i, "your") && (at(v, i+4) == '-' || at(v, i+4) == '_' || at(v, i+4) == ' ') && runOf(v, i, lower|upper|under|dash|space) == len(v) {
			return true
		}
	}
	for _, p := range [...]string{"replace_me", "replace-me", "replaceme", "changeit_", "insert_", "insert-", "placeholder", "<your", "put_your", "put-your", "my_api_key_here", "add_your", "enter_your", "todo"} {
		if hasFold(v, 0, p) {
			return runOf(v, 0, lower|upper|under|dash|space) == len(v)
		}
	}
	return strings.HasSuffix(v, "_here") || strings.HasSuffix(v, "-here") || strings.HasSuffix(v, "_HERE") || strings.HasSuffix(v, "-HERE")
}

// isExpression says that an unquoted v is code: a call, an index, a dotted
// path from a known head, an arithmetic expression. rest is what follows v on
// its line.
func isExpression(v, rest string) bool {
	if len(v) > 2 && (v[0] == '&' || v[0] == '*') && isLetter(v[1]) { // &T{…}, *pkg.T
		v = v[1:]
		if i := runOf(v, 0, word|dot); i < len(v) && v[i] == '{' || i == len(v) && strings.IndexByte(v, '.') > 0 && plainIdent(v[strings.IndexByte(v, '.'):]) {
			return true
		}
	}
	i := 0
	segments := 1
	headEnd := -1
	for {
		j := runOf(v, i, word)
		if j == i || isDigit(v[i]) {
			return false
		}
		if headEnd < 0 {
			headEnd = j
		}
		i = j
		if i == len(v) {
			break
		}
		if v[i] == '?' && at(v, i+1) == '.' || v[i] == '-' && at(v, i+1) == '>' || v[i] == ':' && at(v, i+1) == ':' {
			i += 2
			segments++
			continue
		}
		if v[i] == '!' && i+1 < len(v) && (v[i+1] == '(' || v[i+1] == '[') { // format!(…)
			return true
		}
		if v[i] == '!' && (i+1 == len(v) || v[i+1] == '.') {
			i++
			if i == len(v) {
				break
			}
		}
		if v[i] == '.' && i+1 < len(v) {
			if v[i+1] == '(' { // x.(type)
				return true
			}
			i++
			segments++
			continue
		}
		if v[i] == '(' {
			return plainIdent(v[:i]) || segments > 1
		}
		if v[i] == '{' {
			return plainIdent(v[:i]) && i >= 2 && v[i-1] != '$'
		}
		if v[i] == '[' {
			if k := runOf(v, i+1, digit|colon); k > i+1 && k < len(v) && v[k] == ']' && plainIdent(v[:i]) {
				return true
			}
			return plainIdent(v[:i]) && (at(v, i+1) == '"' || at(v, i+1) == '\'' || at(v, i+1) == '`' || at(v, i+1) == '\\' || isLetter(at(v, i+1)) || at(v, i+1) == ']' || isDigit(at(v, i+1)) && at(v, i+2) == ']')
		}
		if v[i] == '<' && v[0] >= 'A' && v[0] <= 'Z' { // Optional<String>
			return true
		}
		return false
	}
	if inFold(codeWords, v) {
		return rest != ""
	}
	if segments > 1 && plainIdent(v) && (inFold(refHeads, v[:headEnd]) || v[0] == '_' || allTitled(v)) {
		return true
	}
	// An operator or a call after the identifier.
	r := strings.TrimLeft(rest, " ")
	if plainIdent(v) && len(r) < len(rest) && len(r) > 2 {
		for _, op := range [...]string{"|| ", "?? ", "+ ", "? ", "as ", "if ", "or \"", "or '", "and \"", "== ", "!= ", "=== ", "% ("} {
			if strings.HasPrefix(r, op) {
				return true
			}
		}
	}
	return false
}

// allTitled: Keyword.Type, the members of a class.
func allTitled(v string) bool {
	for part := range strings.SplitSeq(v, ".") {
		if len(part) < 3 || part[0] < 'A' || part[0] > 'Z' || runOf(part, 1, lower) != len(part) {
			return false
		}
	}
	return true
}

// plainIdent: letters, dots and underscores, and digits only where names have
// them (sha256, b64decode, utf8, v2).
func plainIdent(v string) bool {
	for i := 0; i < len(v); i++ {
		if !isDigit(v[i]) {
			continue
		}
		j := runOf(v, i, digit)
		switch v[i:j] {
		case "1", "2", "5", "8", "16", "32", "64", "128", "256", "512":
		default:
			return false
		}
		i = j
	}
	return true
}

// isPath says that v is a file's path, not a value.
func isPath(v string) bool {
	if len(v) < 2 {
		return v == "/" || v == "~" || v == "."
	}
	if v[0] == '~' && v[1] == '/' || strings.HasPrefix(v, "./") || strings.HasPrefix(v, "../") {
		return true
	}
	if v[0] == '/' && !strings.Contains(v, "//") {
		first := runOf(v, 1, lower|upper|digit|under|dash|dot)
		if !randomish(v[1:]) && first > 1 && strings.IndexByte(v, '+') < 0 && strings.IndexByte(v, '=') < 0 {
			return true
		}
	}
	if len(v) > 3 && isLetter(v[0]) && v[1] == ':' && (v[2] == '\\' || v[2] == '/') {
		return true
	}
	if i := strings.LastIndexByte(v, '.'); i > 0 && fileTails[strings.ToLower(v[i+1:])] && runOf(v, 0, alnum|under|dash|dot|plusSlash) == len(v) && !randomish(v[:i]) {
		return true
	}
	return false
}

var fileTails = set(`pem key crt cer p12 pfx jks json yaml yml toml ini conf cfg txt env pub gpg asc kdbx netrc properties xml
	go py js ts tsx jsx rb rs java kt c h cc cpp cs php sh md html css sql lock log`)

// isURL: scheme://…
func isURL(v string) bool {
	i := runOf(v, 0, alnum|plusSlash|dot|dash)
	return i > 1 && strings.HasPrefix(v[i:], "://")
}

// isUUID also knows the form without dashes' sister, the ULID.
func isUUID(v string) bool {
	if len(v) != 36 || v[8] != '-' || v[13] != '-' || v[18] != '-' || v[23] != '-' {
		return false
	}
	for i := range len(v) {
		if v[i] != '-' && !is(v[i], hexa) {
			return false
		}
	}
	return true
}

func isULID(v string) bool {
	return len(v) == 26 && v[0] <= '7' && runOf(v, 0, upper|digit) == 26
}

// randomish says that v looks made by a generator: long enough, no blanks,
// and more changes between letters, digits and cases than words have.
func randomish(v string) bool {
	if len(v) < 10 || isUUID(v) {
		return false
	}
	letters, digits, changes, run, best := 0, 0, 0, 0, 0
	ups, lows := 0, 0
	prev := charset(0)
	for i := 0; i < len(v); i++ {
		c := charsOf[v[i]] & (lower | upper | digit)
		switch c {
		case 0:
			if isSpace(v[i]) || v[i] < ' ' {
				return false
			}
			prev = 0
			run = 0
			continue
		case digit:
			digits++
		case upper:
			ups++
			letters++
		default:
			lows++
			letters++
		}
		run++
		best = max(best, run)
		if prev != 0 && c != prev && !(prev == upper && c == lower) {
			changes++
		}
		prev = c
	}
	if digits == 0 {
		return best >= 16 && ups >= 4 && lows >= 4 && changes >= 5 && changes*6 >= len(v)
	}
	if letters == 0 {
		return false
	}
	// Names in camelCase change now and then, keys all the time.
	if changes >= 3 && best >= 8 && changes*5 >= min(len(v), 60) {
		return true
	}
	if changes >= 4 && len(v) >= 12 && changes*6 >= min(len(v), 60) {
		return true
	}
	return runOf(v, 0, hexa) == len(v) && len(v) >= 24 && changes >= 2
}

// guessable says that v is a word that may well stand elsewhere as itself, so
// that hiding it wherever it stands would hide more than a secret.
func guessable(v string) bool {
	if len(v) < 6 {
		return true
	}
	low, up, dig, sym, spaces := 0, 0, 0, 0, 0
	for i := range len(v) {
		switch {
		case isDigit(v[i]):
			dig++
		case v[i] >= 'a' && v[i] <= 'z':
			low++
		case v[i] >= 'A' && v[i] <= 'Z':
			up++
		case v[i] == ' ':
			spaces++
		default:
			sym++
		}
	}
	switch {
	case dig == len(v):
		return len(v) < 8
	case dig+sym == 0: // letters and blanks
		if spaces > 0 {
			return len(v) < 12
		}
		return !randomish(v) && (up > 1 || len(v) < 20)
	case isPath(v), isURL(v):
		return true
	case low+up == 0:
		return len(v) < 8
	case sym == 0 && plainIdent(v) && dig <= 3: // uint32, sha256, value2
		return !randomish(v)
	case dig == 0 && runOf(v, 0, lower|upper|under|dash|dot) == len(v): // snake, kebab, dotted words
		return len(v) < 16
	}
	return false
}

// changes counts how often v goes from letters to digits, or from one case to
// the other, but for a capital at the beginning of a word.
func changes(v string) int {
	n := 0
	prev := charset(0)
	for i := range len(v) {
		c := charsOf[v[i]] & (lower | upper | digit)
		if c != 0 && prev != 0 && c != prev && !(prev == upper && c == lower) {
			n++
		}
		prev = c
	}
	return n
}
