package collector

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// trusted marks the requests of a connection that its socket's file mode has
// already admitted.
type trusted struct{}

// admitted says whether a request comes from the local socket, or shows the
// token. Without a token everyone who can reach a loopback address may watch
// and emit; commands need more, on any binding.
func (c *Collector) admitted(r *http.Request) bool {
	if *c.token.Load() == "" || r.Context().Value(trusted{}) != nil {
		return true
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return c.isToken(strings.TrimSpace(token))
	}
	// Browsers' EventSource cannot set a header (AEP-0003 §8.1).
	return c.isToken(r.URL.Query().Get("access_token"))
}

// isToken compares in constant time, whatever the lengths.
func (c *Collector) isToken(presented string) bool {
	a, b := sha256.Sum256([]byte(presented)), sha256.Sum256([]byte(*c.token.Load()))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// connContext marks a unix socket's connections.
func connContext(ctx context.Context, conn net.Conn) context.Context {
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
