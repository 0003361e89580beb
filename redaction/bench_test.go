package redaction

import (
	"fmt"
	"strings"
	"testing"
)

// cleanText is what agents mostly write: prose, code, logs, without a secret.
func cleanText(n int) string {
	const page = `The token budget of a run is bounded: max_tokens=4096 by default, see docs/limits.md for the keys.
func (s *Server) Handle(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Query().Get("sort_key")
	if err := s.store.Put(ctx, key, body); err != nil {
		log.Printf("put %s: %v", key, err)
		return
	}
}
2024-01-15T10:30:00.123Z INFO  request_id=550e8400-e29b-41d4-a716-446655440000 status=200 bytes=1834 dur=12.4ms path=/api/v1/items
ok  	example.com/x/store	0.412s	coverage: 81.2% of statements
commit 3f786850e387550fdab836ed7e6dc881de23001b (HEAD -> main)
    Refactor the author index and its primary_key handling; passes on all platforms
      "integrity": "sha512-0123456789abcdefABCDEF0123456789abcdefABCDEF0123456789abcdefABCDEF012345678901234567890==",
`
	return strings.Repeat(page, n/len(page)+1)[:n]
}

// dirtyText has a secret on every other line.
func dirtyText(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "export SERVICE_%d_TOKEN=tok%da8f7e6d5c4 && curl -H 'Authorization: Bearer x%dy8z7w6v5' https://u:p%dass@h.test/x?sig=abcdef%d0123\n", i, i, i, i, i)
		b.WriteString("and then the build went on for a while, with 42 tests and no failures at all\n")
		fmt.Fprintf(&b, "{\"password\": \"hunter%d\", \"user\": \"jane%d@example.com\", \"home\": \"/home/jane\", \"tel\": \"+1 555 123 %04d\"}\n", i, i, i%10000)
	}
	return b.String()[:n]
}

func BenchmarkText(b *testing.B) {
	p := NewPipeline(Options{Home: "/home/op", Secrets: []Secret{{"A", "q1w2e3r4t5y6u7i8"}, {"B", "another-secret-value"}}})
	for _, c := range []struct {
		name string
		make func(int) string
	}{{"clean", cleanText}, {"dirty", dirtyText}} {
		for _, n := range []int{200, 64 << 10, 4 << 20} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				s := c.make(n)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					p.Text(s)
				}
			})
		}
	}
}
