package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

type knowing string

func (knowing) Error() string   { return "x" }
func (k knowing) Class() string { return string(k) }

// Failures of each kind, as an HTTP client meets them.
func TestClass(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	rude, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer rude.Close()
	go func() {
		for {
			c, err := rude.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	nobody, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0) // has a port, and does not listen there
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(nobody)
	if err := unix.Bind(nobody, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	gone, err := unix.Getsockname(nobody)
	if err != nil {
		t.Fatal(err)
	}
	names := nobodysNames(t)
	network := &http.Transport{DialContext: (&net.Dialer{Resolver: names}).DialContext}
	defer network.CloseIdleConnections()
	for url, want := range map[string]string{
		fmt.Sprintf("http://127.0.0.1:%d", gone.(*unix.SockaddrInet4).Port): Unreachable,

		"http://no-such-host.invalid": Unreachable,
		secure.URL:                    NoTrust,
		"https://" + plain.Listener.Addr().String(): Other,
		"http://" + silent.Addr().String():          Slow,
		"http://" + rude.Addr().String():            Other,
	} {
		patience := time.Minute
		if want == Slow {
			patience = time.Second
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: network}).Do(req)
		cancel()
		if err == nil {
			resp.Body.Close()
			t.Errorf("%s answers", url)
			continue
		}
		if got := Class(fmt.Errorf("post: %w", err), 0); got != want {
			t.Errorf("%s: %s, want %s (%v)", url, got, want, err)
		}
	}
	for status, want := range map[int]string{401: NoLeave, 403: NoLeave, 302: Refusing, 404: Refusing, 413: Refusing, 429: Refusing, 500: Broken, 503: Broken} {
		if got := Class(nil, status); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
	if got := Class(fmt.Errorf("x: %w", knowing(NoLeave)), 0); got != NoLeave {
		t.Error(got)
	}
	if got := Class(errors.New("x"), 0); got != Other {
		t.Error(got)
	}
}

// nobodysNames is a resolver that knows no name at once, whatever the machine's
// network is.
func nobodysNames(t *testing.T) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		b := make([]byte, 1<<10)
		for {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			if n > 3 {
				b[2], b[3] = b[2]|0x80, 3 // an answer: there is no such name
				_, _ = server.WriteTo(b[:n], from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}
