package redaction

import (
	"net/url"
	"strings"
)

// urlAt: "://" stands at start; the user part in front of the host is looked
// for here. Query keys with a credential's name are found by their names.
func (sc *scan) urlAt(start, end int) {
	s := sc.s
	if start == 0 || !isAlnum(s[start-1]) {
		return
	}
	// The authority ends at the first of /?# ; a password may hold them
	// unescaped, and then what looks like a port is none.
	slash := -1
	lastAt := -1
	k := end
scan:
	for k < len(s) && k-end < 2048 {
		switch c := s[k]; c {
		case ' ', '\t', '\n', '\r', '"', '\'', '`', '<', '>', '|', 0:
			break scan
		case '\\':
			if _, _, next := quoteAt(s, k); next > k || at(s, k+1) == 'n' || at(s, k+1) == 'u' {
				break scan
			}
		case '@':
			if slash < 0 {
				lastAt = k
			} else if lastAt < 0 && oddPort(s[end:slash]) {
				lastAt = k
				break scan
			}
		case '/', '?', '#':
			if slash < 0 {
				slash = k
				if lastAt >= 0 || !oddPort(s[end:slash]) {
					break scan
				}
			}
		case ',':
			if lastAt < 0 && slash < 0 && k+1 < len(s) && isSpace(s[k+1]) {
				break scan
			}
		case '$', '{':
			if strings.HasPrefix(s[k:], "${{") {
				if e := strings.Index(s[k:min(len(s), k+200)], "}}"); e > 0 {
					k += e + 2
					continue
				}
			}
		}
		k++
	}
	if lastAt < 0 {
		sc.webhook(start, end)
		return
	}
	info := s[end:lastAt]
	c := strings.IndexByte(info, ':')
	if strings.HasPrefix(info, "[REDACTED:") {
		if c = strings.IndexByte(info, ']') + 1; c == len(info) || info[c] != ':' {
			return
		}
	}
	if c >= 0 {
		pw := info[c+1:]
		if pw == "" || isReference(pw, 0) || strings.HasPrefix(pw, "{") {
			if strings.HasPrefix(pw, "${") {
				sc.fallback(&place{n: name{grade: floor}}, end+c+1, lastAt)
			}
			// https://TOKEN:x-oauth-basic@host, https://TOKEN:@host
			if u := info[:c]; pw == "" && (randomish(u) || len(u) >= 20) && !isReference(u, 0) {
				sc.hideValue(end, end+c, ruleURLUser)
			}
			return
		}
		if pw == "x-oauth-basic" || pw == "x" || pw == "X" {
			sc.hideValue(end, end+c, ruleURLUser)
			return
		}
		sc.hideValue(end+c+1, lastAt, ruleURLUser)
		if d, err := url.PathUnescape(pw); err == nil && d != pw && !guessable(d) {
			sc.found = append(sc.found, d)
		}
		if u := info[:c]; randomish(u) && len(u) >= 16 && strings.IndexByte(u, '.') < 0 {
			sc.spans = append(sc.spans, span{start: end, end: end + c, rule: ruleURLUser})
		}
		return
	}
	if (randomish(info) || len(info) >= 24 && runOf(info, 0, alnum|dash|under) == len(info)) && !isReference(info, 0) && strings.IndexByte(info, '.') < 0 {
		sc.hideValue(end, lastAt, ruleURLUser)
	}
}

// oddPort: host:x where x is no port's number.
func oddPort(authority string) bool {
	c := strings.IndexByte(authority, ':')
	if c < 0 || authority[0] == '[' {
		return false
	}
	p := authority[c+1:]
	return p != "" && runOf(p, 0, digit) != len(p) && p[0] != '$' && p[0] != '{' && p[0] != '<' && p[0] != '%' && p[0] != ':'
}

// hooks are URLs whose path is the credential.
var hooks = []struct {
	host, path string
	keep       int // path segments after path that name only whose hook it is
}{
	{"hooks.slack.com", "/services/", 0},
	{"hooks.slack.com", "/workflows/", 0},
	{"hooks.slack.com", "/triggers/", 0},
	{"hooks.slack-gov.com", "/services/", 0},
	{"discord.com", "/api/webhooks/", 1},
	{"discordapp.com", "/api/webhooks/", 1},
	{"ptb.discord.com", "/api/webhooks/", 1},
	{"canary.discord.com", "/api/webhooks/", 1},
	{"api.telegram.org", "/bot", 0},
	{"hooks.zapier.com", "/hooks/catch/", 1},
	{"webhook.office.com", "/webhook", 0},
	{"outlook.office.com", "/webhook", 0},
	{"logic.azure.com", "/workflows/", 1},
	{"open.feishu.cn", "/open-apis/bot/v2/hook/", 0},
	{"open.larksuite.com", "/open-apis/bot/v2/hook/", 0},
	{"maker.ifttt.com", "/with/key/", 0},
	{"maker.ifttt.com", "/use/", 0},
	{"hook.integromat.com", "/", 0},
	{"hook.eu1.make.com", "/", 0},
	{"hook.us1.make.com", "/", 0},
	{"events.pagerduty.com", "/integration/", 0},
	{"alert.victorops.com", "/integrations/generic/", 1},
	{"mainnet.infura.io", "/v3/", 0},
	{"infura.io", "/v3/", 0},
	{"alchemy.com", "/v2/", 0},
	{"alchemyapi.io", "/v2/", 0},
	{"ngrok.com", "/authtokens/", 0},
	{"webhooks.mongodb-realm.com", "/", 0},
	{"pipedream.net", "/", 0},
	{"mattermost.com", "/hooks/", 0},
}

// webhook hides the path of a URL that is itself a credential.
func (sc *scan) webhook(start, end int) {
	s := sc.s
	h := runOf(s, end, alnum|dash|dot)
	if h == end || at(s, h) != '/' {
		return
	}
	host := s[end:h]
	for i := range hooks {
		w := &hooks[i]
		if !strings.HasSuffix(host, w.host) || len(host) > len(w.host) && host[len(host)-len(w.host)-1] != '.' {
			continue
		}
		e := runOf(s, h, alnum|under|dash|dot|tilde|colon|plusSlash)
		for e < len(s) && (s[e] == '@' || s[e] == '%') {
			e = runOf(s, e+1, alnum|under|dash|dot|tilde|colon|plusSlash)
		}
		o := strings.Index(s[h:e], w.path)
		if o < 0 {
			continue
		}
		b := h + o + len(w.path)
		for range w.keep {
			if n := strings.IndexByte(s[b:e], '/'); n >= 0 {
				b += n + 1
			}
		}
		if w.path == "/webhook" { // webhookb2/…
			if n := strings.IndexByte(s[b:e], '/'); n >= 0 {
				b += n + 1
			}
		}
		if w.path == "/bot" {
			if n := strings.IndexByte(s[b:e], '/'); n >= 0 {
				e = b + n
			}
		}
		if e-b >= 8 && !isReference(s[b:e], 0) {
			sc.hide(b, e, ruleHook)
		}
		return
	}
}

// queryAt: keys that are credentials only in a URL: sig, signature, code, key.
func (sc *scan) queryAt(start, end int) {
	s := sc.s
	if at(s, end) != '=' {
		return
	}
	b := start
	for b > 0 && (isWord(s[b-1]) || s[b-1] == '-') && start-b < 24 {
		b--
	}
	if b == 0 || s[b-1] != '?' && s[b-1] != '&' && s[b-1] != '#' && s[b-1] != ';' {
		return
	}
	e := end + 1
	for e < len(s) && strings.IndexByte("&# \t\n\r\"'`<>)]}\\,;", s[e]) < 0 {
		e++
	}
	v := s[end+1 : e]
	id := strings.ToLower(s[b:end])
	ok := false
	switch id {
	case "sig", "signature", "x-amz-signature", "x-goog-signature", "x-oss-signature", "x-cos-signature", "hmac", "x-amz-security-token", "sign", "policy_signature":
		ok = len(v) >= 8 && !isUUID(v)
	case "code", "authuser_code", "ticket", "state_code", "oobcode", "invite":
		ok = len(v) >= 10 && (randomish(v) || strings.ContainsAny(v, "0123456789") && len(v) >= 16)
	case "key", "k", "appid", "app_key", "appkey", "licence", "license":
		ok = len(v) >= 8 && (passLike(v) || randomish(v)) && !(id == "k" && len(v) < 20)
	}
	if ok && !isReference(v, 0) {
		sc.hideValue(end+1, e, ruleQuery)
	}
}

// atHost: user:password@tcp(host), user:password@host.tld without a scheme,
// oracle's user/password@//host.
func (sc *scan) atHost(start, end int) {
	s := sc.s
	b := start
	for b > sc.low && start-b < 160 {
		c := s[b-1]
		if isSpace(c) || c == '"' || c == '\'' || c == '`' || c == '=' || c == '<' || c == '(' || c == '>' || c == ',' {
			break
		}
		b--
	}
	if b > sc.low && s[b-1] == '(' && b >= 2 && !isSpace(s[b-2]) && start-b < 1 {
		return
	}
	left := s[b:start]
	if strings.Contains(left, "://") {
		return
	}
	driver := hasFold(s, end, "tcp(") || hasFold(s, end, "unix(") || hasFold(s, end, "udp(") || hasFold(s, end, "tcp6(")
	if j := strings.LastIndex(left, ":@"); j >= 0 {
		left = left[j+2:]
	}
	// jdbc:oracle:thin:scott/tiger@host:1521:orcl, sqlplus scott/tiger@orcl
	if o := strings.Index(left, "thin:"); o >= 0 {
		if sl := strings.IndexByte(left[o:], '/'); sl > 0 && o+sl+1 < len(left) {
			if pw := left[o+sl+1:]; !isReference(pw, 0) {
				sc.hideValue(start-len(pw), start, ruleURLUser)
			}
		}
		return
	}
	c := strings.IndexByte(left, ':')
	if c < 1 || c == len(left)-1 {
		return
	}
	user, pw := left[:c], left[c+1:]
	if strings.IndexByte(pw, ':') >= 0 && !driver || pw[0] == '/' || isReference(pw, 0) || runOf(user, 0, word|dot|dash) != len(user) {
		return
	}
	if !driver {
		switch strings.ToLower(user) {
		case "mailto", "sip", "sips", "xmpp", "acct", "npm", "jsr", "email", "to", "from", "cc", "bcc", "author", "user", "mail", "e-mail", "contact", "git", "ssh", "docker", "image", "file", "http", "https", "link", "workspace", "patch", "portal", "catalog", "reply-to", "sender", "committer", "by", "me", "at", "github", "gitlab", "pkg", "login", "owner":
			return
		}
		if strings.IndexByte(pw, '/') >= 0 || isVersion(pw) && strings.HasPrefix(s[end:], "sha256:") || strings.HasPrefix(s[end:], "sha256:") {
			return
		}
		// What follows must be a host: a name with a dot, a port, an address.
		h := runOf(s, end, alnum|dash|dot)
		host := strings.TrimRight(s[end:h], ".")
		known := host == "localhost" || at(s, h) == ':' && isDigit(at(s, h+1)) || at(s, h) == '/'
		if host == "" || !known && strings.IndexByte(host, '.') < 0 || isVersion(host) && !strings.Contains(host, ".") {
			return
		}
		if !passLike(pw) && !randomish(pw) && !known {
			return
		}
		if runOf(pw, 0, digit) == len(pw) && len(pw) < 6 {
			return
		}
	}
	sc.hideValue(start-len(pw), start, ruleURLUser)
}
