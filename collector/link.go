package collector

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A link lets a device in without the endpoint's own token: it carries a code,
// in the fragment of a URL, that is exchanged once, and soon, for a token of
// the device's own. That token watches and commands at most, ends by itself,
// and is signed, not stored: it holds over a restart, and ends with the key.
// Who looks over a shoulder, or reads a history, finds a code that is used up.
type links struct {
	mu    sync.Mutex
	key   []byte
	codes map[[sha256.Size]byte]*grant
}

// grant is what a code is exchanged for.
type grant struct {
	roles Role
	life  time.Duration
	until time.Time // of the code
}

// The bounds of links.
const (
	codeLife  = 5 * time.Minute
	maxCodes  = 32
	maxDevice = 31 * 24 * time.Hour // a device's token
	minKey    = 16
)

// deviceRoles are all that a device may be given.
const deviceRoles = Watch | Control

// SetLinkKey sets the key by which devices' tokens are signed: one that was
// signed by another is refused from now on, what it opened is ended, and so is
// a code that was made before. Without a key there are no links.
func (c *Collector) SetLinkKey(key []byte) {
	if len(key) < minKey {
		key = nil
	}
	c.links.set(key)
	c.guests.review(c.allowed)
}

func (l *links) set(key []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !hmac.Equal(l.key, key) {
		l.key, l.codes = key, nil
	}
}

// mint makes a code.
func (l *links) mint(g grant, now time.Time) (code string, ok bool) {
	var b [16]byte
	_, _ = rand.Read(b[:])
	code = base64.RawURLEncoding.EncodeToString(b[:])
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.key == nil {
		return "", false
	}
	if l.codes == nil {
		l.codes = map[[sha256.Size]byte]*grant{}
	}
	for sum, old := range l.codes {
		if !now.Before(old.until) {
			delete(l.codes, sum)
		}
	}
	for len(l.codes) >= maxCodes { // the one that ends first gives way
		var first [sha256.Size]byte
		var until time.Time
		for sum, old := range l.codes {
			if until.IsZero() || old.until.Before(until) {
				first, until = sum, old.until
			}
		}
		delete(l.codes, first)
	}
	g.until = now.Add(codeLife)
	l.codes[sha256.Sum256([]byte(code))] = &g
	return code, true
}

// exchange uses a code up.
func (l *links) exchange(code string, now time.Time) (token string, roles Role, until time.Time, ok bool) {
	sum := sha256.Sum256([]byte(code))
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.codes[sum]
	if g == nil {
		return "", 0, time.Time{}, false
	}
	delete(l.codes, sum)
	if !now.Before(g.until) {
		return "", 0, time.Time{}, false
	}
	until = now.Add(g.life).Truncate(time.Second)
	return sign(l.key, g.roles, until), g.roles, until, true
}

// A device's token: aepd_ and, in base64url, its roles, its end in Unix
// seconds, eight random bytes, and the MAC of these.
const (
	devicePrefix = "aepd_"
	deviceFacts  = 1 + 8 + 8
)

func sign(key []byte, roles Role, until time.Time) string {
	b := make([]byte, deviceFacts, deviceFacts+sha256.Size)
	b[0] = byte(roles)
	binary.BigEndian.PutUint64(b[1:], uint64(until.Unix()))
	_, _ = rand.Read(b[9:])
	return devicePrefix + base64.RawURLEncoding.EncodeToString(append(b, mac(key, b)...))
}

func mac(key, facts []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("aep device token 1"))
	h.Write(facts)
	return h.Sum(nil)
}

// roles is what a device's token allows, 0 for all that is none of ours.
func (l *links) roles(token string, now time.Time) Role {
	rest, ok := strings.CutPrefix(token, devicePrefix)
	if !ok || len(rest) > 128 || strings.ContainsAny(rest, "\r\n") { // which a decoder passes over
		return 0
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(b) != deviceFacts+sha256.Size {
		return 0
	}
	l.mu.Lock()
	key := l.key
	l.mu.Unlock()
	facts := b[:deviceFacts]
	if key == nil || !hmac.Equal(b[deviceFacts:], mac(key, facts)) {
		return 0
	}
	if now.Unix() >= int64(binary.BigEndian.Uint64(facts[1:])) {
		return 0
	}
	return Role(facts[0]) & deviceRoles
}

var noLinks = problem{Error: "not-found", Detail: "this endpoint makes no links"}

// mintLink serves POST /link: {"roles": "watch,control", "seconds": 86400} gives
// a code. It is for who may do everything: a device's token makes no further
// devices.
func (c *Collector) mintLink(w http.ResponseWriter, r *http.Request) {
	if c.allowed(r) != AllRoles {
		c.refuse(w, http.StatusForbidden, problem{Error: "forbidden", Detail: "links are made by the endpoint's own token, or by its local socket"})
		return
	}
	ask := struct {
		Roles   string  `json:"roles"`
		Seconds float64 `json:"seconds"`
	}{deviceRoles.String(), (24 * time.Hour).Seconds()}
	if !c.readLink(w, r, &ask) {
		return
	}
	roles, err := ParseRole(ask.Roles)
	if err == nil && roles&^deviceRoles != 0 {
		err = fmt.Errorf("%q: want watch, or watch,control", clip(ask.Roles))
	}
	if err != nil {
		c.refuse(w, http.StatusBadRequest, problem{Error: "invalid-link", Detail: "roles: " + err.Error()})
		return
	}
	if ask.Seconds < 1 || ask.Seconds > maxDevice.Seconds() {
		c.refuse(w, http.StatusBadRequest, problem{Error: "invalid-link", Detail: fmt.Sprintf("seconds: want 1 to %.0f", maxDevice.Seconds())})
		return
	}
	now := time.Now()
	code, ok := c.links.mint(grant{roles: roles, life: time.Duration(ask.Seconds) * time.Second}, now)
	if !ok {
		fail(w, http.StatusNotFound, noLinks)
		return
	}
	c.touch()
	w.Header().Set("Cache-Control", "no-store")
	reply(w, http.StatusOK, map[string]any{"code": code, "roles": roles.String(), "expires_at": now.Add(codeLife).UTC().Format(time.RFC3339)})
}

// exchangeLink serves POST /link/exchange: {"code": …} gives the device's token.
// The code is the proof: there is no other yet.
func (c *Collector) exchangeLink(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	var ask struct {
		Code string `json:"code"`
	}
	if !c.readLink(w, r, &ask) {
		return
	}
	c.links.mu.Lock()
	none := c.links.key == nil
	c.links.mu.Unlock()
	if none {
		fail(w, http.StatusNotFound, noLinks)
		return
	}
	token, roles, until, ok := c.links.exchange(ask.Code, time.Now())
	if !ok {
		c.refuse(w, http.StatusGone, problem{Error: "link-used", Detail: "this link was used before, or is too old: make another with aep-wrap link"})
		return
	}
	c.touch()
	c.log.Info("a device was let in by a link", "from", r.RemoteAddr, "roles", roles.String(), "until", until.Format(time.RFC3339))
	reply(w, http.StatusOK, map[string]any{"token": token, "roles": roles.String(), "expires_at": until.UTC().Format(time.RFC3339)})
}

// readLink reads a small JSON body. That it must say so keeps a page's form
// from sending one.
func (c *Collector) readLink(w http.ResponseWriter, r *http.Request, into any) bool {
	if mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); mediaType != "application/json" {
		c.refuse(w, http.StatusUnsupportedMediaType, problem{Error: "unsupported-content-type", Detail: "want application/json"})
		return false
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(c.limits.Header))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<10))
	if err == nil && len(body) > 0 {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		c.refuse(w, http.StatusBadRequest, problem{Error: "invalid-link", Detail: "want a small JSON object"})
		return false
	}
	return true
}
