package collector

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// trusted marks the requests of a connection that its socket's file mode has
// already admitted.
type trusted struct{}

// Role is what a token allows; roles add up.
type Role uint8

// The roles.
const (
	Emit     Role = 1 << iota // send events
	Watch                     // read streams, the roster and metrics
	Control                   // send commands
	AllRoles = Emit | Watch | Control
)

var roleNames = [...]string{"emit", "watch", "control"}

func (r Role) String() string {
	var names []string
	for i, n := range roleNames {
		if r&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, ",")
}

// ParseRole reads roles with commas between them.
func ParseRole(s string) (Role, error) {
	var r Role
	for name := range strings.SplitSeq(s, ",") {
		i := slices.Index(roleNames[:], strings.TrimSpace(name))
		if i < 0 {
			return 0, fmt.Errorf("%q: want one or more of emit, watch and control, with commas between them", clip(name))
		}
		r |= 1 << i
	}
	return r, nil
}

// Token is a bearer token and what it allows.
type Token struct {
	Value  string
	Roles  Role
	Scopes string // what it allows elsewhere, with commas between
}

// ParseTokens reads a file of tokens: a line has a token, a space, and what it
// allows with commas between: roles, and scopes, which are other servers'; * is
// all of both. # begins a comment. An error names the line and never the token.
func ParseTokens(text []byte, scopes ...string) ([]Token, error) {
	var out []Token
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) == "" {
			continue
		}
		words := strings.Fields(line)
		if len(words) != 2 {
			return nil, fmt.Errorf("line %d: want a token, a space, and what it allows, such as emit,watch", n)
		}
		for _, c := range words[0] {
			if c <= ' ' || c > '~' {
				return nil, fmt.Errorf("line %d: want a token of visible ASCII characters", n)
			}
		}
		t, err := allows(words[1], scopes)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		t.Value = words[0]
		if slices.ContainsFunc(out, func(t Token) bool { return t.Value == words[0] }) {
			return nil, fmt.Errorf("line %d: this token stands twice", n)
		}
		out = append(out, t)
	}
	return out, nil
}

// allows reads what a token allows.
func allows(list string, scopes []string) (t Token, err error) {
	if list == "*" {
		return Token{Roles: AllRoles, Scopes: strings.Join(scopes, ",")}, nil
	}
	var own []string
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); slices.Contains(scopes, word) {
			own = append(own, word)
			continue
		}
		r, err := ParseRole(word)
		if err != nil && len(scopes) > 0 {
			err = fmt.Errorf("%w; or *, or some of %s", err, strings.Join(scopes, ", "))
		}
		if err != nil {
			return t, err
		}
		t.Roles |= r
	}
	t.Scopes = strings.Join(own, ",")
	return t, nil
}

// admittance is the tokens as they are compared.
type admittance []struct {
	sum   [sha256.Size]byte
	roles Role
}

func admittanceOf(tokens []Token) *admittance {
	a := make(admittance, 0, len(tokens))
	for _, t := range tokens {
		if t.Value != "" {
			a = append(a, struct {
				sum   [sha256.Size]byte
				roles Role
			}{sha256.Sum256([]byte(t.Value)), t.Roles})
		}
	}
	return &a
}

// roles compares with every token, in a time that says nothing of any.
func (a admittance) roles(presented string) (r Role) {
	sum := sha256.Sum256([]byte(presented))
	for i := range a {
		same := subtle.ConstantTimeCompare(sum[:], a[i].sum[:])
		r |= Role(same) * a[i].roles
	}
	return r
}

// allowed is what a request's sender may do: everything by the local socket,
// whose file mode has admitted it; what the token says, where there are
// tokens; and to watch and emit where there are none, for then only loopback
// is served. Commands need a proof of who sends them, on any binding (AEP-0004
// §4.1).
func (c *Collector) allowed(r *http.Request) Role {
	if r.Context().Value(trusted{}) != nil {
		return AllRoles
	}
	tokens := *c.tokens.Load()
	if len(tokens) == 0 {
		return Emit | Watch
	}
	token := presented(r)
	return tokens.roles(token) | c.links.roles(token, time.Now())
}

// presented is the token that a request comes with.
func presented(r *http.Request) string {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	// Browsers' EventSource and WebSocket cannot set a header (AEP-0003 §8.1).
	// What a WebSocket can do is to offer protocols, which, unlike an address,
	// nobody logs.
	if token, ok := offeredToken(r.Header); ok {
		return token
	}
	return r.URL.Query().Get("access_token")
}

// The protocols that a browser's WebSocket may offer: ours, and beside it one
// that is the token in base64url. Ours alone is ever chosen.
const (
	subprotocol   = "aep"
	tokenProtocol = "aep.bearer."
)

// offeredToken is the token among a handshake's protocols.
func offeredToken(h http.Header) (string, bool) {
	for _, v := range h.Values("Sec-WebSocket-Protocol") {
		for offer := range strings.SplitSeq(v, ",") {
			if text, ok := strings.CutPrefix(strings.TrimSpace(offer), tokenProtocol); ok {
				token, err := base64.RawURLEncoding.DecodeString(text)
				return string(token), err == nil
			}
		}
	}
	return "", false
}

// connContext marks a unix socket's connections, and notes each one's.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	ctx = withPeer(ctx, conn)
	if conn.LocalAddr().Network() == "unix" {
		return context.WithValue(ctx, trusted{}, true)
	}
	return ctx
}

// guard answers what must be settled before a request is looked at: whether
// the page that sent it may, and whether its Host is a name of ours. Without
// the second a page anywhere could have its own name resolve to 127.0.0.1, and
// read us as its own origin.
func (c *Collector) guard(w http.ResponseWriter, r *http.Request) bool {
	if r.Context().Value(trusted{}) != nil {
		return true
	}
	if r.TLS == nil && !c.cfg.BehindProxy && !c.ownHost(r.Host) {
		c.refuse(w, http.StatusForbidden, problem{Error: "forbidden-host",
			Detail: "this endpoint is not called " + clip(r.Host) + ": reach it by its address, or have the name configured"})
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	switch {
	case slices.Contains(c.cfg.Origins, origin):
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", "Retry-After")
	case !sameOrigin(origin, r.Host):
		c.refuse(w, http.StatusForbidden, problem{Error: "forbidden-origin",
			Detail: "pages of " + clip(origin) + " may not use this endpoint: have the origin configured"})
		return false
	}
	return true
}

// ownHost says whether a Host header can only have come from someone who
// meant us: an address, which nobody can rebind, or a name that is ours.
func (c *Collector) ownHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(c.cfg.Hosts, host) {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// preflight answers a browser that asks before it sends.
func (c *Collector) preflight(w http.ResponseWriter, r *http.Request, methods []string) {
	h := w.Header()
	h.Set("Allow", strings.Join(methods, ", "))
	if h.Get("Access-Control-Allow-Origin") != "" {
		h.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, AEP-Version, Last-Event-ID")
		h.Set("Access-Control-Max-Age", "600")
	}
	w.WriteHeader(http.StatusNoContent)
}
