package redaction

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// Value is Text over every string of a JSON tree, and over its objects' names.
// What an object holds under a credential's name is hidden whatever it looks
// like. The tree is not changed; what nothing is hidden in is shared with it.
func (p *Pipeline) Value(v any) any {
	v, _ = p.explainTree(v, false)
	return v
}

// value redacts a tree.
func (h *hider) value(v any) any {
	switch v := v.(type) {
	case string:
		return h.text(v)
	case []any:
		return h.array(v)
	case map[string]any:
		return h.object(v)
	}
	return v
}

// argNames are the members that hold a program's arguments when another holds
// its name.
var argNames = set("args arguments argv params")

func programOf(m map[string]any) string {
	for _, k := range [...]string{"command", "cmd", "program", "executable", "bin", "file"} {
		if s, ok := m[k].(string); ok {
			s = s[strings.LastIndexAny(s, `/\`)+1:]
			if commandNames[s] {
				return s
			}
		}
	}
	return ""
}

func hasUser(m map[string]any) bool {
	for _, k := range [...]string{"user", "username", "login", "email", "User", "Username"} {
		if _, ok := m[k].(string); ok {
			return true
		}
	}
	return false
}

func (h *hider) array(a []any) any { return h.words(a, "") }

// words redacts an array, which may be a command's words; program is the
// command when it is not the first of them.
func (h *hider) words(a []any, program string) any {
	var secret [][]span
	if program != "" {
		if secret = argvSecrets(append([]any{program}, a...)); secret != nil {
			secret = secret[1:]
		}
	} else {
		secret = argvSecrets(a)
	}
	var out []any
	for i, e := range a {
		var n any
		h.down("", index(h.explain, i))
		if s, ok := e.(string); ok && secret != nil && secret[i] != nil {
			n = h.hideParts(s, secret[i])
		} else {
			n = h.value(e)
		}
		h.up()
		if out == nil && !same(n, e) {
			out = append(make([]any, 0, len(a)), a[:i]...)
		}
		if out != nil {
			out = append(out, n)
		}
	}
	if out == nil {
		return a
	}
	return out
}

func (h *hider) object(m map[string]any) any {
	sc := newScan("")
	defer sc.release()
	var out map[string]any
	set := func(k, nk string, v any) {
		if out == nil {
			out = make(map[string]any, len(m))
			for k, v := range m {
				out[k] = v
			}
		}
		if nk != k {
			delete(out, k)
			for n, base := 2, nk; ; n++ {
				if _, taken := out[nk]; !taken {
					break
				}
				nk = base + "#" + strconv.Itoa(n)
			}
		}
		out[nk] = v
	}
	pair := pairName(m, sc)
	program := programOf(m)
	kube := m["kind"] == "Secret"
	_, jwk := m["kty"].(string)
	for k, v := range m {
		var n any
		nk := h.text(k)
		h.down(".", nk)
		id := sc.names.of(k, "")
		if id.grade == noName || id.grade == weak {
			if a, b, ok := strings.Cut(k, " "); ok && len(k) < 48 { // "API Key"
				if x := sc.names.of(b, strings.ToLower(a)); x.grade > id.grade {
					id = x
				}
			}
		}
		if id.grade == weak && id.kind == userPass && strings.EqualFold(k, "pass") && hasUser(m) {
			id.grade, id.kind = firm, plain
		}
		args, isArgs := v.([]any)
		switch {
		case len(k) > maxName:
			n = h.value(v)
		case isArgs && program != "" && argNames[strings.ToLower(k)]:
			n = h.words(args, program)
		case kube && (k == "data" || k == "stringData"), id.grade >= firm:
			n = h.hideAll(v, &id)
		case pair.grade >= weak && pairValues[strings.ToLower(k)]:
			n = h.hideUnder(k, v, &pair, sc)
		case jwk && (k == "d" || k == "p" || k == "q" || k == "dp" || k == "dq" || k == "qi" || k == "k"):
			n = h.hideAll(v, &name{grade: floor})
		case id.grade == weak:
			n = h.hideUnder(k, v, &id, sc)
		default:
			n = h.value(v)
		}
		h.up()
		if nk != k || !same(n, v) {
			set(k, nk, n)
		}
	}
	if out == nil {
		return m
	}
	return out
}

// pairValues are the members that hold the value of what "name" names.
var pairValues = set(`value val v default content secret data defaultvalue default_value stringvalue string_value parametervalue text`)

// pairName judges {"name": "DB_PASSWORD", "value": …} by its name.
func pairName(m map[string]any, sc *scan) name {
	for _, k := range [...]string{"name", "key", "Name", "Key", "field", "param", "parameter", "parameterName", "ParameterKey", "variable", "keyName", "env", "header", "id", "type", "label", "k"} {
		if s, ok := m[k].(string); ok && len(s) < maxName && s != "" {
			if n := sc.names.of(s, ""); n.grade >= firm || n.grade == weak && k != "type" && k != "id" {
				return n
			}
			if a, b, ok := strings.Cut(s, " "); ok {
				if n := sc.names.of(b, strings.ToLower(a)); n.grade >= firm {
					return n
				}
			}
		}
	}
	return name{}
}

// hideAll hides what is held under a credential's name: strings, whatever they
// look like, and numbers where the name is one of a password or a pin.
func (h *hider) hideAll(v any, n *name) any {
	switch v := v.(type) {
	case string:
		if v == "" || strings.HasPrefix(v, "[REDACTED") && strings.HasSuffix(v, "]") && strings.Count(v, "[") == 1 {
			return v
		}
		if n.kind == workingDir && isPath(v) {
			return h.text(v)
		}
		h.learnValue(v)
		h.told([]span{{start: 0, end: len(v), rule: ruleKey}})
		return SecretMarker
	case json.Number, int, int64, float64:
		if n.grade == floor && !n.quantity && !n.plural || n.kind == numeric {
			if s := numberText(v); len(s) >= 4 {
				h.learnValue(s)
				h.told([]span{{start: 0, end: len(s), rule: ruleKey}})
				return SecretMarker
			}
		}
		return v
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			h.down("", index(h.explain, i))
			out[i] = h.hideAll(e, n)
			h.up()
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			// Numbers below are counts as often as not.
			nn := *n
			nn.quantity, nn.kind = true, plain
			nk := h.text(k)
			h.down(".", nk)
			out[nk] = h.hideAll(e, &nn)
			h.up()
		}
		return out
	}
	return v
}

func numberText(v any) string {
	switch v := v.(type) {
	case json.Number:
		return v.String()
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

func (h *hider) learnValue(s string) {
	if len(s) > 4096 {
		return
	}
	if !guessable(s) {
		h.learn([]string{s})
	}
	// Authorization: Basic dXNlcjpwYXNz, Bearer x
	if scheme, rest, ok := strings.Cut(s, " "); ok {
		if _, known := schemes[strings.ToLower(scheme)]; known && !guessable(rest) {
			h.learn([]string{rest})
		}
		if pw, ok := basicPassword(rest); ok && !guessable(pw) {
			h.learn([]string{pw})
		}
	}
}

// hideUnder judges a value under a name that is a credential's only if the
// value looks like one.
func (h *hider) hideUnder(k string, v any, n *name, sc *scan) any {
	if n.grade >= firm {
		return h.hideAll(v, n)
	}
	switch v := v.(type) {
	case string:
		sc.reset(v)
		p := place{n: *n, sep: colonS, id: "x"}
		if n.kind == cookies {
			sc.cookieText(&place{closed: true, n: *n}, 0, len(v))
		} else if n.kind != plain || !n.plural || randomish(v) {
			p.id = k
			sc.judge(&p, 0, len(v), '"')
		}
		if len(sc.spans) == 0 {
			return h.text(v)
		}
		h.learn(sc.found)
		spans := flatten(sc.spans)
		h.told(spans)
		return h.text(render(v, spans))
	case json.Number:
		if n.kind == numeric && len(v) >= 4 && runOf(string(v), 0, digit) == len(v) {
			return SecretMarker
		}
		return v
	case []any:
		if n.kind == cookies {
			return h.value(h.cookieJar(v))
		}
		if !n.plural && n.kind == plain {
			return h.value(v)
		}
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = h.hideUnder(k, e, n, sc)
		}
		return out
	case map[string]any:
		if n.kind == cookies {
			return h.hideAll(v, n)
		}
		m, ok := h.value(v).(map[string]any)
		if !n.plural || !ok {
			return m
		}
		// Members without a name that tells are judged by the name above.
		tokens := len(k) >= 6 && strings.EqualFold(k[len(k)-6:], "tokens")
		out := make(map[string]any, len(m))
		for member, e := range m {
			out[member] = e
			s, isText := e.(string)
			if was, ok := v[member].(string); !isText || !ok || was != s {
				continue
			}
			if randomish(s) || tokens && len(s) >= 4 && beforeTokens[strings.ToLower(member)] {
				out[member] = h.hideAll(s, n)
			}
		}
		return out
	}
	return v
}

// cookieJar hides the values of [{"name": "sid", "value": "x"}].
func (h *hider) cookieJar(a []any) []any {
	out := make([]any, len(a))
	for i, e := range a {
		out[i] = e
		if m, ok := e.(map[string]any); ok {
			if s, ok := m["value"].(string); ok && s != "" {
				c := make(map[string]any, len(m))
				for k, v := range m {
					c[k] = v
				}
				c["value"] = SecretMarker
				h.learnValue(s)
				h.told([]span{{start: 0, end: len(s), rule: ruleCookie}})
				out[i] = c
			}
		}
	}
	return out
}

// argvSecrets reads an array of strings as a command's words, or as a name and
// its value: what to hide of each, or nil.
func argvSecrets(a []any) [][]span {
	if len(a) < 2 {
		return nil
	}
	var out [][]span
	mark := func(i, start, end int) {
		if out == nil {
			out = make([][]span, len(a))
		}
		out[i] = append(out[i], span{start: start, end: end, rule: ruleOption})
	}
	first, _ := a[0].(string)
	sc := newScan("")
	defer sc.release()
	if len(a) == 2 {
		if v, ok := a[1].(string); ok && len(first) < maxName && first != "" && first[0] != '-' {
			if n := sc.names.of(first, ""); n.grade >= firm && (randomish(v) || passLike(v) || n.kind == authorization || n.kind == cookies) {
				mark(1, 0, len(v))
			}
		}
	}
	known := false
	for i, e := range a {
		w, ok := e.(string)
		if !ok {
			return out
		}
		if len(w) > 1 && len(w) < maxName && w[0] == '-' && i+1 < len(a) && runOf(w, 0, word|dash|dot) == len(w) {
			v, _ := a[i+1].(string)
			if v == "" || v[0] == '-' || isReference(v, 0) {
				continue
			}
			switch n := sc.names.of(strings.TrimLeft(w, "-"), ""); {
			case n.grade >= firm && !isPath(v) && !(n.quantity && runOf(v, 0, digit) == len(v)):
				if openSSL(v[:max(0, strings.IndexByte(v, ':'))]) {
					continue
				}
				mark(i+1, 0, len(v))
			case n.grade == weak && n.kind != plain && len(w) > 3:
				if c := strings.IndexByte(v, ':'); c > 0 && c+1 < len(v) && !isURL(v) {
					mark(i+1, c+1, len(v))
				}
			}
		}
		known = known || i < 3 && commandNames[w]
	}
	if !known {
		return out
	}
	// A command that is known: its line is read as text.
	var line strings.Builder
	var at []int
	for _, e := range a {
		w := e.(string)
		if len(w) > 4096 || strings.ContainsAny(w, "\"\\\n") {
			w = strings.Repeat("_", min(len(w), 8))
		}
		line.WriteByte('"')
		at = append(at, line.Len())
		line.WriteString(w)
		line.WriteString(`",`)
	}
	sc.reset(line.String())
	sc.run()
	for _, sp := range sc.spans {
		if sp.rule != ruleCommand {
			continue
		}
		for i, b := range at {
			if w := a[i].(string); sp.start >= b && sp.end <= b+len(w) && strings.HasPrefix(sc.s[b:], w) {
				mark(i, sp.start-b, sp.end-b)
			}
		}
	}
	return out
}

var commandNames = func() map[string]bool {
	m := map[string]bool{}
	for _, c := range commands {
		for _, n := range c.names {
			m[n] = true
		}
	}
	return m
}()

func (h *hider) hideParts(s string, parts []span) string {
	parts = flatten(parts)
	for _, sp := range parts {
		h.learnValue(s[sp.start:sp.end])
	}
	h.told(parts)
	return render(s, parts)
}

// index is a step into an array, when somebody wants to know.
func index(explain bool, i int) string {
	if !explain {
		return ""
	}
	return "[" + strconv.Itoa(i) + "]"
}

// againValue hides in a redacted tree what other strings of it told.
func (h *hider) againValue(v any) any {
	switch v := v.(type) {
	case string:
		return h.again(v)
	case []any:
		var out []any
		for i, e := range v {
			n := h.againValue(e)
			if out == nil && !same(n, e) {
				out = append(make([]any, 0, len(v)), v[:i]...)
			}
			if out != nil {
				out = append(out, n)
			}
		}
		if out != nil {
			return out
		}
	case map[string]any:
		var out map[string]any
		for k, e := range v {
			n := h.againValue(e)
			nk := h.again(k)
			if nk == k && same(n, e) {
				continue
			}
			if out == nil {
				out = make(map[string]any, len(v))
				for k, v := range v {
					out[k] = v
				}
			}
			if nk != k {
				delete(out, k)
			}
			out[nk] = n
		}
		if out != nil {
			return out
		}
	}
	return v
}

// same says that a rewriting left e as it was.
func same(n, e any) bool {
	switch n := n.(type) {
	case string:
		s, ok := e.(string)
		return ok && s == n
	case []any:
		a, ok := e.([]any)
		return ok && len(a) == len(n) && (len(a) == 0 || &a[0] == &n[0])
	case map[string]any:
		// A map that was not copied is the same map; comparing two maps is only
		// possible through what they hold.
		m, ok := e.(map[string]any)
		return ok && sameMap(m, n)
	}
	return true
}

func sameMap(a, b map[string]any) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}
