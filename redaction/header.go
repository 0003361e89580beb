package redaction

import (
	"encoding/base64"
	"strings"
)

// schemes are HTTP's authentication schemes. Those that are true take a list
// of parameters, the others one token.
var schemes = map[string]bool{
	"basic": false, "bearer": false, "token": false, "negotiate": false, "ntlm": false, "apikey": false, "api-key": false,
	"key": false, "dpop": false, "sso": false, "splunk": false, "jwt": false, "genie-key": false, "genie": false, "bot": false, "discogs": true,
	"ssws": false, "x-api-key": false, "apitoken": false, "api-token": false, "bearertoken": false, "kbn-api-key": false, "pvetoken": false,
	"digest": true, "aws": false, "aws4-hmac-sha256": true, "hawk": true, "oauth": true, "mac": true, "signature": true, "sharedkey": false, "sharedkeylite": false,
	"sharedaccesssignature": true, "hmac": true, "hmac-sha256": true, "hoba": true, "mutual": true, "vapid": true, "gnap": false,
	"scram-sha-1": true, "scram-sha-256": true, "privatetoken": false, "mediabrowser": true, "google-login": true, "googlelogin": true, "ocloud": true, "tc3-hmac-sha256": true, "acs3-hmac-sha256": true, "httpsig": true,
}

// authorizationAt hides the credentials that begin at i: a header's value, or
// a string with one.
func (sc *scan) authorizationAt(p *place, i int) {
	s := sc.s
	for at(s, i) == '[' && !hasFold(s, i, "[redacted") || at(s, i) == '(' {
		i = skipBlank(s, i+1)
		if at(s, i) == ']' { // []string{"Bearer x"}
			if k := runOf(s, i+1, word|dot); at(s, k) == '{' {
				i = skipBlank(s, k+1)
			}
		}
	}
	if start, end, q, ok := sc.quoted(i); ok {
		switch p.sep {
		case commaS:
			if v := s[start:end]; strings.IndexByte(v, ' ') < 0 && !sc.commaValue(p, start, end, q) {
				return
			}
		case orS:
			return
		}
		if n := len(sc.spans); !sc.authorizationText(p, start, end) && len(sc.spans) == n {
			// "Bearer " + "x"
			if t := strings.TrimSpace(s[start:end]); t != "" {
				if _, ok := schemes[strings.ToLower(t)]; ok {
					k := skipBlank(s, end+p.slashesOf(s, end)+1)
					if at(s, k) == '+' || at(s, k) == '.' {
						if b, e, q, ok := sc.quoted(skipBlank(s, k+1)); ok && !isReference(s[b:e], q) {
							sc.hideValue(b, e, ruleAuthorization)
						}
					}
				}
			}
		}
		return
	}
	if p.sep == equalQ || p.sep == commaS || p.sep == orS || p.sep == pipeS {
		return
	}
	sc.schemeAt(p, i)
}

// schemeAt: scheme and credentials without quotes, up to the end of the line
// or of the string around them.
func (sc *scan) schemeAt(p *place, i int) {
	s := sc.s
	e := i
	for e < len(s) && (isAlnum(s[e]) || s[e] == '-') && e-i < 24 {
		e++
	}
	scheme := strings.ToLower(s[i:e])
	params, known := schemes[scheme]
	k := skipBlank(s, e)
	if !known || k == e && !strings.HasPrefix(s[k:], "%20") && at(s, k) != ':' {
		end := sc.bareEnd(p, i)
		v := s[i:end]
		if v == "" || isPunct(v) || known && (p.sep == blankS || p.sep == none) {
			return
		}
		if known && skipBlank(s, end) == end {
			return // the scheme alone
		}
		if isExpression(v, "") || inFold(codeWords, v) || inFold(proseWords, strings.TrimRight(v, ".,;:")) || sc.isNameOf(p, v, end) {
			return
		}
		rest := s[end:lineEndIn(s, end, 160)]
		if isReference(v, 0) {
			return
		}
		if p.sep == none && !randomish(v) {
			return
		}
		// Unknown scheme: two words, the second a credential.
		if b := skipBlank(s, end); b > end && runOf(v, 0, lower|upper|dash) == len(v) && len(v) <= 24 {
			e2 := sc.bareEnd(p, b)
			w := s[b:e2]
			if strings.HasPrefix(w, "[REDACTED:") {
				return
			}
			if passLike(w) || randomish(w) {
				if !isReference(w, 0) {
					sc.hideValue(b, e2, ruleAuthorization)
				}
				return
			}
			if isSentence(v + rest) {
				return
			}
		}
		sc.hideValue(i, end, ruleAuthorization)
		return
	}
	if strings.HasPrefix(s[k:], "%20") {
		k += 3
	} else if at(s, k) == ':' {
		k = skipBlank(s, k+1)
	}
	if params {
		end := k
		for end < len(s) && s[end] != '\n' && s[end] != '\r' && end-k < 4096 {
			c := s[end]
			if c == '\'' && (p.quote == '\'' || p.quote == 0 && closes(s, end)) || c == '"' && p.quote == '"' && (p.slashes == 0 && at(s, end-1) != '\\') {
				break
			}
			if c == '\\' {
				if q, n, _ := quoteAt(s, end); q != 0 && q == p.quote && n == p.slashes && p.slashes > 0 {
					break
				}
				if at(s, end+1) == 'n' || at(s, end+1) == 'r' && at(s, end+2) == '\\' {
					break
				}
			}
			end++
		}
		for end > k && isSpace(s[end-1]) {
			end--
		}
		if !isReference(s[k:end], 0) && !isSentence(s[k:end]) {
			sc.hideValue(k, end, ruleAuthorization)
		}
		return
	}
	if b, e, q, ok := sc.quoted(k); ok {
		if !isReference(s[b:e], q) {
			sc.hideValue(b, e, ruleAuthorization)
		}
		return
	}
	end := sc.bareEnd(p, k)
	v := s[k:end]
	if v == "" || isPunct(v) && len(v) < 6 || isReference(v, 0) || isExpression(v, "") && strings.ContainsAny(v, "([") || inFold(proseWords, v) || isLiteral(v) {
		return
	}
	if p.sep == none && !randomish(v) && !isBasic(v) {
		return
	}
	sc.hideValue(k, end, ruleAuthorization)
	if scheme == "basic" {
		sc.basic(v)
	}
}

// authorizationText judges a whole string that is an Authorization value.
func (sc *scan) authorizationText(p *place, start, end int) bool {
	s := sc.s
	v := s[start:end]
	i := skipBlank(v, 0)
	e := i
	for e < len(v) && !isSpace(v[e]) {
		e++
	}
	_, known := schemes[strings.ToLower(strings.TrimRight(v[i:e], ":"))]
	if e < len(v) && (known || e-i <= 24 && runOf(v, i, alnum|dash|under) == e && !inFold(proseWords, v[i:e])) {
		k := start + skipBlank(v, e)
		w := s[k:end]
		if strings.HasPrefix(w, "[REDACTED:") {
			return true
		}
		if known && (isReference(w, 0) || strings.HasPrefix(w, "{") || strings.HasPrefix(w, "${") || strings.HasPrefix(w, "#{") || strings.HasPrefix(w, "\\(") || strings.HasPrefix(w, "%s")) {
			return false
		}
		if known || passLike(w) || randomish(w) {
			sc.hideValue(k, end, ruleAuthorization)
			if strings.EqualFold(v[i:e], "basic") {
				sc.basic(w)
			}
			return true
		}
		if isSentence(v) {
			return false
		}
	}
	if known || isReference(strings.TrimSpace(v), '"') {
		return false
	}
	sc.hideValue(start, end, ruleAuthorization)
	return true
}

// basic: what was in Basic credentials is hidden where it stands alone too.
func (sc *scan) basic(v string) {
	if pw, ok := basicPassword(v); ok && !guessable(pw) {
		sc.found = append(sc.found, pw)
	}
}

// isBasic: v is base64 of user:password.
func isBasic(v string) bool {
	_, ok := basicPassword(v)
	return ok
}

func basicPassword(v string) (string, bool) {
	t := strings.TrimRight(v, "=")
	if len(t) < 4 || len(t) > 2048 || len(t)%4 == 1 || runOf(t, 0, base64std) != len(t) {
		return "", false
	}
	b, err := base64.RawStdEncoding.DecodeString(t)
	if err != nil {
		return "", false
	}
	user, pw, ok := strings.Cut(string(b), ":")
	if !ok || pw == "" {
		return "", false
	}
	for _, r := range user + pw {
		if r < ' ' || r == 0xfffd || r == 0x7f {
			return "", false
		}
	}
	return pw, true
}

// bearerAt: "Bearer x" wherever it stands.
func (sc *scan) bearerAt(start, end int) {
	s := sc.s
	if !edge(s, start) && !escapeBefore(s, start) || at(s, start-1) == '-' && isAlnum(at(s, start-2)) {
		return
	}
	k := end
	switch {
	case isBlank(at(s, k)):
		k = skipBlank(s, k)
	case strings.HasPrefix(s[k:], "%20"):
		k += 3
	case at(s, k) == '+' && isAlnum(at(s, k+1)):
		k++
	case strings.HasPrefix(s[k:], `\u0020`):
		k += 6
	default:
		return
	}
	for (at(s, k) == '"' || at(s, k) == '\'' || at(s, k) == '`') && isAlnum(at(s, k+1)) {
		k++
	}
	e := runOf(s, k, tokenish)
	for e < len(s) && s[e] == '%' && is(at(s, e+1), hexa) && is(at(s, e+2), hexa) && k < e {
		e = runOf(s, e+3, tokenish)
	}
	v := strings.TrimRight(s[k:e], ".")
	if strings.HasSuffix(v, "=") && (at(s, e) == '"' || at(s, e) == '\'' || at(s, e) == '\\') {
		return // a challenge's parameter: realm="x"
	}
	if len(v) < 4 || isReference(v, 0) || at(s, e) == '(' || at(s, k-1) == '$' {
		return
	}
	letters := runOf(v, 0, lower|upper) == len(v)
	if letters {
		if inFold(proseWords, v) || inFold(bearerWords, v) || len(v) < 8 && s[start] == 'b' {
			return
		}
		next := skipBlank(s, k+len(v))
		alone := next >= len(s) || eol(s, next) >= 0 || closes(s, k+len(v)-1) && next == k+len(v)
		if !randomish(v) && !(alone && (s[start] == 'B' || s[start] == 'b' && len(v) >= 16)) {
			return
		}
	} else if inFold(bearerWords, v) || isExpression(v, "") && strings.IndexByte(v, '.') > 0 && !strings.ContainsAny(v, "0123456789") {
		return
	} else if !strings.ContainsAny(v, "0123456789") && runOf(v, 0, lower|under|dash|dot) == len(v) && len(v) < 20 {
		return // bearer-only, bearer_methods
	}
	sc.hideValue(k, k+len(v), ruleBearer)
}

var bearerWords = set(`token tokens auth authentication authorization scheme schemes header headers realm format error errors type access
	credential credentials bonds bond shares security securityscheme or and jwt string value method methods assertion token_type only usage
	http https apikey oauth oauth2 based middleware strategy prefix keyword authenticated`)

// basicAt: "Basic dXNlcjpwYXNz" wherever it stands.
func (sc *scan) basicAt(start, end int) {
	s := sc.s
	if !edge(s, start) {
		return
	}
	k := end
	if isBlank(at(s, k)) {
		k = skipBlank(s, k)
	} else if strings.HasPrefix(s[k:], "%20") {
		k += 3
	} else {
		return
	}
	e := runOf(s, k, base64std|equals)
	if v := s[k:e]; len(v) >= 8 && isBasic(v) {
		sc.hideValue(k, e, ruleBasic)
		sc.basic(v)
	}
}

// cookieAttrs are no cookies but say how one is kept.
var cookieAttrs = set(`path domain expires max-age samesite secure httponly priority partitioned version comment`)

func (sc *scan) cookiesAt(p *place, i int) {
	s := sc.s
	if start, end, q, ok := sc.quoted(i); ok {
		if p.sep == commaS && strings.IndexByte(s[start:end], '=') < 0 {
			if sc.commaValue(p, start, end, q) {
				sc.judgeCookie(p, start, end)
			}
			return
		}
		sc.cookieText(p, start, end)
		return
	}
	switch at(s, i) {
	case '[':
		k := i + 1
		for n := 0; n < 64; n++ {
			for k < len(s) && (isSpace(s[k]) || s[k] == ',') {
				k++
			}
			if at(s, k) == '{' { // [{"name": "sid", "value": "x"}]
				sc.cookieObjects(k)
				return
			}
			b, e, _, ok := sc.quoted(k)
			if !ok {
				break
			}
			sc.cookieText(p, b, e)
			k = e + p.slashesOf(s, e) + 1
		}
		if k > i+1 {
			return
		}
		i++
	case '{', '(', '<', '$', '&', '*':
		return
	}
	if p.sep != colonS && p.sep != equalS {
		return
	}
	end := i
	for end < len(s) && s[end] != '\n' && s[end] != '\r' && end-i < 8192 {
		if c := s[end]; (c == '"' || c == '\'') && closes(s, end) && at(s, end-1) != '=' || c == ']' && closes(s, end) {
			break
		}
		if isBlank(s[end]) && at(s, end-1) != ';' && at(s, end-1) != ',' && p.quote == 0 && !cookieDate(s, end) {
			break
		}
		if s[end] == '\\' {
			if q, _, next := quoteAt(s, end); q != 0 && closes(s, next-1) || at(s, end+1) == 'n' || at(s, end+1) == 'r' {
				break
			}
		}
		end++
	}
	sc.cookieText(p, i, end)
}

// cookieDate: a blank inside of Expires=Mon, 15 Jan 2024 10:30:00 GMT.
func cookieDate(s string, i int) bool {
	return isDigit(at(s, i-1)) && (isLetter(at(s, i+1)) || isDigit(at(s, i+1))) || isLetter(at(s, i-1)) && isDigit(at(s, i+1)) && isDigit(at(s, i+2)) && isDigit(at(s, i+3))
}

// cookieText hides the values of a=b; c=d and leaves the attributes of
// Set-Cookie.
func (sc *scan) cookieText(p *place, start, end int) {
	s := sc.s
	if strings.IndexByte(s[start:end], '=') < 0 {
		sc.judgeCookie(p, start, end)
		return
	}
	for i := start; i < end; {
		e := i
		for e < end && s[e] != ';' && !(s[e] == ',' && isBlank(at(s, e+1)) && nextName(s, e+1) && !hasFold(s, i, "expires")) {
			e++
		}
		b := i
		for b < e && isSpace(s[b]) {
			b++
		}
		eq := strings.IndexByte(s[b:e], '=')
		if eq < 0 {
			if b == start && e < end { // no name: hide it all
				sc.judgeCookie(p, b, e)
			}
			i = e + 1
			continue
		}
		n := s[b : b+eq]
		if strings.IndexByte(strings.TrimSpace(n), ' ') >= 0 {
			// A sentence with an equals sign, or several on a line of a log.
			if b == start {
				return
			}
		}
		if !inFold(cookieAttrs, strings.TrimSpace(n)) {
			vb, ve := b+eq+1, e
			for vb < ve && (s[vb] == '"' || s[vb] == ' ' || s[vb] == '\\') {
				vb++
			}
			// Without quotes around the header, a blank ends the last value.
			if p.quote == 0 && !p.closed {
				if sp := strings.IndexByte(s[vb:ve], ' '); sp >= 0 {
					ve = vb + sp
				}
			}
			for ve > vb && (isSpace(s[ve-1]) || s[ve-1] == '"' || s[ve-1] == '\\') {
				ve--
			}
			if v := s[vb:ve]; v != "" && !isReference(v, 0) {
				sc.hideValue(vb, ve, ruleCookie)
			}
		}
		i = e + 1
	}
}

// cookieObjects hides the values of cookies that are objects.
func (sc *scan) cookieObjects(i int) {
	s := sc.s
	for limit := min(len(s), i+4096); i < limit && s[i] != ']'; i++ {
		if s[i] != 'v' && s[i] != 'V' || !hasFold(s, i, "value") || isWord(at(s, i-1)) {
			continue
		}
		k := i + 5
		if _, _, next := quoteAt(s, k); next > k {
			k = next
		}
		k = skipBlank(s, k)
		if c := at(s, k); c != ':' && c != '=' {
			continue
		}
		if b, e, q, ok := sc.quoted(skipBlank(s, k+1)); ok {
			if !isReference(s[b:e], q) {
				sc.hideValue(b, e, ruleCookie)
			}
			i = e
		}
	}
}

func (sc *scan) judgeCookie(p *place, start, end int) {
	v := strings.TrimSpace(sc.s[start:end])
	if v != "" && strings.IndexByte(v, ' ') < 0 && (passLike(v) || randomish(v)) && !isReference(v, 0) && !isConstant(v) && strings.IndexByte("]*&{(\\", v[0]) < 0 && !isExpression(v, "") {
		b := start + strings.Index(sc.s[start:end], v)
		sc.hideValue(b, b+len(v), ruleCookie)
	}
}
