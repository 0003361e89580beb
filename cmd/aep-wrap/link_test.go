package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rsc.io/qr"
)

func TestPickAddress(t *testing.T) {
	cidr := func(list ...string) (out []net.Addr) {
		for _, s := range list {
			ip, n, err := net.ParseCIDR(s)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, &net.IPNet{IP: ip, Mask: n.Mask})
		}
		return out
	}
	for _, tt := range []struct {
		addrs []net.Addr
		want  string
	}{
		{cidr("127.0.0.1/8", "::1/128"), "127.0.0.1"},
		{cidr("127.0.0.1/8", "fe80::1/64", "2001:db8::1/64", "192.168.1.4/24"), "192.168.1.4"},
		{cidr("203.0.113.9/24", "fd00::1/64"), "203.0.113.9"},
		{cidr("169.254.1.1/16", "fd00::1/64"), "fd00::1"},
		{cidr("fd00::1/64", "2001:db8::1/64"), "2001:db8::1"},
		{nil, "127.0.0.1"},
	} {
		if got := pickAddress(tt.addrs); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.addrs, got, tt.want)
		}
	}
}

// What stands between a device and the page is named, with what to do.
func TestProbe(t *testing.T) {
	answers := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != "POST" || r.URL.Path != "/link/exchange" || r.Header.Get("Origin") != "http://"+r.Host && r.TLS == nil {
				t.Errorf("%s %s %s", r.Method, r.URL, r.Header)
			}
			w.WriteHeader(status)
			w.Write([]byte(body))
		})
	}
	for _, tt := range []struct {
		status int
		body   string
		says   string
	}{
		{410, `{"error":"link-used"}`, ""},
		{403, `{"error":"forbidden-host"}`, "collect --host 127.0.0.1"},
		{403, `{"error":"forbidden-origin"}`, "collect --origin http://127.0.0.1"},
		{404, `{"error":"not-found"}`, "is not this collector's page"},
		{200, `<html>`, "is not this collector's page"},
	} {
		s := httptest.NewServer(answers(tt.status, tt.body))
		got := strings.Join(probe(context.Background(), s.URL), "\n")
		if tt.says == "" && got != "" || !strings.Contains(got, tt.says) {
			t.Errorf("%d %s: %q", tt.status, tt.body, got)
		}
		s.Close()
	}
	s := httptest.NewUnstartedServer(answers(410, `{"error":"link-used"}`))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it says that we did not trust it
	s.StartTLS()
	defer s.Close()
	if got := strings.Join(probe(context.Background(), s.URL), "\n"); !strings.Contains(got, "not one that this machine trusts") {
		t.Errorf("%q", got)
	}
}

// The drawing is the code, module for module.
func TestDrawQR(t *testing.T) {
	const text = "https://agents.example/#code=AAAAAAAAAAAAAAAAAAAAAA"
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := &app{Stdout: &out, Getenv: func(string) string { return "" }}
	if err := a.drawQR(text); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if want := (code.Size + 4 + 1) / 2; len(lines) != want {
		t.Fatalf("%d lines, want %d", len(lines), want)
	}
	for n, line := range lines {
		for x, r := range []rune(line) {
			for half := range 2 {
				light := r == '█' || r == []rune("▀▄")[half]
				if mx, my := x-2, 2*n+half-2; code.Black(mx, my) == light {
					t.Fatalf("module %d,%d is light: %v", mx, my, light)
				}
			}
		}
	}
}
