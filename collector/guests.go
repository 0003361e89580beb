package collector

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// guests are the open streams and sockets of network addresses. A token lets
// them in once; when it is taken away, or its time is over, they go.
type guests struct {
	mu  sync.Mutex
	all map[*guest]struct{}
}

// guest came with a request, was let do something, and can be ended.
type guest struct {
	r   *http.Request
	may Role
	end func()
}

// guestOf is what has to be kept of a request to ask again what its sender may
// do.
func guestOf(r *http.Request) *http.Request {
	token := presented(r)
	kept := &http.Request{Header: http.Header{}, URL: &url.URL{}}
	if token != "" {
		kept.Header.Set("Authorization", "Bearer "+token)
	}
	ctx := context.Background()
	if v := r.Context().Value(trusted{}); v != nil {
		ctx = context.WithValue(ctx, trusted{}, v)
	}
	return kept.WithContext(ctx)
}

var errRevoked = errors.New("the token is not good any more")

// reviewEvery is how often guests are looked at whose token has a time.
const reviewEvery = 15 * time.Second

// welcome notes a guest, until leave is called. One whose token was taken away
// since it was let in goes at once.
func (c *Collector) welcome(r *http.Request, may Role, end func()) (leave func()) {
	leave = c.guests.welcome(r, may, end)
	if may&^c.allowed(r) != 0 {
		end()
	}
	return leave
}

// welcome notes a guest, until leave is called.
func (g *guests) welcome(r *http.Request, may Role, end func()) (leave func()) {
	if r.Context().Value(trusted{}) != nil {
		return func() {}
	}
	n := &guest{r, may, end}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all = map[*guest]struct{}{}
	}
	g.all[n] = struct{}{}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.all, n)
	}
}

// review ends those who may not do any more what they may do.
func (g *guests) review(allowed func(*http.Request) Role) {
	var gone []*guest
	g.mu.Lock()
	for n := range g.all {
		if n.may&^allowed(n.r) != 0 {
			gone = append(gone, n)
			delete(g.all, n)
		}
	}
	g.mu.Unlock()
	for _, n := range gone {
		n.end()
	}
}
