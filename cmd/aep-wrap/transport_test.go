package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"aep-wrap/collector"
)

// authority issues certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t}
	a.cert, a.key, a.pem = a.issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) issue(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		a.t.Fatal(err)
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair issues a certificate with its key, as PEM.
func (a *authority) pair(name string) (cert, key []byte) {
	a.t.Helper()
	_, k, cert := a.issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// strictCollector speaks TLS, and with those alone whose certificate it knows.
// Only a proxy finds it: its name is nobody's.
type strictCollector struct {
	url, addr string
	mu        sync.Mutex
	seen      map[string]int // requests, by method and path
	clients   *x509.CertPool
}

const strictName = "collector.test"

func newStrictCollector(t *testing.T, a *authority) *strictCollector {
	s := &strictCollector{seen: map[string]int{}, clients: a.pool()}
	inner := collector.New(collector.Config{Token: "open-sesame", Hosts: []string{strictName}, Limits: collector.Limits{Drain: 50 * time.Millisecond}}).Handler()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen[r.Method+" "+r.URL.Path]++
		s.mu.Unlock()
		inner.ServeHTTP(w, r)
	}))
	cert, key := a.pair(strictName)
	own, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	base := &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2", "http/1.1"}}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := base.Clone()
		s.mu.Lock()
		c.ClientCAs = s.clients
		s.mu.Unlock()
		return c, nil
	}
	srv.TLS, srv.EnableHTTP2 = base, true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	s.addr = srv.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(s.addr)
	s.url = "https://" + strictName + ":" + port
	return s
}

func (s *strictCollector) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[what]
}

func (s *strictCollector) trust(a *authority) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = a.pool()
}

// connectProxy is a proxy that leads to the collector alone.
type connectProxy struct {
	*httptest.Server
	mu     sync.Mutex
	tunnel int
}

func newConnectProxy(t *testing.T, to *strictCollector) *connectProxy {
	p := &connectProxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || "https://"+r.Host != to.url {
			http.Error(w, "not there", http.StatusBadGateway)
			return
		}
		there, err := net.Dial("tcp", to.addr)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			there.Close()
			return
		}
		p.mu.Lock()
		p.tunnel++
		p.mu.Unlock()
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(there, here)
			there.Close()
		}()
		_, _ = io.Copy(here, there)
		here.Close()
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *connectProxy) tunnels() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tunnel
}

// Every way to a collector takes the proxy, trusts the named CA alone, and
// shows the certificate: the socket, POST and the stream.
func TestProxyAndCertificates(t *testing.T) {
	a := newAuthority(t, "one")
	c := newStrictCollector(t, a)
	proxy := newConnectProxy(t, c)
	w := newWorld(t)
	cert, key := a.pair("wrapper")
	ca, certFile, keyFile := w.file("ca.pem", string(a.pem)), w.file("cert.pem", string(cert)), w.file("key.pem", string(key))
	env := []string{"AEP_COLLECTOR=" + c.url, "AEP_TOKEN=open-sesame", "HTTPS_PROXY=" + proxy.URL}
	all := append([]string{"AEP_CA_FILE=" + ca, "AEP_CLIENT_CERT=" + certFile, "AEP_CLIENT_KEY=" + keyFile}, env...)

	steps := []struct {
		way  string
		args []string
		seen string
		says string
	}{
		{"socket", []string{"--", "sh", "-c", "echo done"}, "GET /socket", "done"},
		{"post", nil, "POST /events", "sent"},
		{"stream", []string{"ps", "--all"}, "GET /stream", "sh"},
	}
	for _, s := range steps {
		t.Run(s.way, func(t *testing.T) {
			if s.way == "post" {
				for path := range w.logged() {
					s.args = []string{"replay", path}
				}
			}
			before, tunnels := c.count(s.seen), proxy.tunnels()
			r := w.run(all, s.args...)
			if r.code != 0 || !strings.Contains(r.stdout+r.stderr, s.says) {
				t.Errorf("%+v", r)
			}
			if c.count(s.seen) == before {
				t.Errorf("no %s: %v", s.seen, c.seen)
			}
			if proxy.tunnels() == tunnels {
				t.Error("not by the proxy")
			}
		})
	}

	other := newAuthority(t, "other")
	strange, strangeKey := other.pair("stranger")
	for _, tt := range []struct {
		name string
		env  []string
		says []string
	}{
		{"unknown authority", nil, []string{"--ca-file"}},
		{"another authority", []string{"AEP_CA_FILE=" + w.file("other.pem", string(other.pem))}, []string{"is not in --ca-file", "other.pem"}},
		{"no certificate", []string{"AEP_CA_FILE=" + ca}, []string{"--client-cert and --client-key"}},
		{"a stranger's", []string{"AEP_CA_FILE=" + ca, "AEP_CLIENT_CERT=" + w.file("s.pem", string(strange)), "AEP_CLIENT_KEY=" + w.file("sk.pem", string(strangeKey))},
			[]string{"may not take --client-cert", "s.pem"}},
		{"no such file", []string{"AEP_CA_FILE=/nowhere/ca.pem"}, []string{"--ca-file", "/nowhere/ca.pem"}},
		{"no PEM", []string{"AEP_CA_FILE=" + w.file("no.pem", "none")}, []string{"no.pem", "want the collector's CA as PEM"}},
		{"half", []string{"AEP_CLIENT_CERT=" + certFile}, []string{"without a --client-key"}},
		{"not its key", []string{"AEP_CLIENT_CERT=" + certFile, "AEP_CLIENT_KEY=" + w.file("k2.pem", string(strangeKey))}, []string{"cert.pem", "k2.pem", "its own key"}},
		{"past the proxy", []string{"NO_PROXY=" + strictName, "AEP_CA_FILE=" + ca}, []string{"lookup " + strictName}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := w.run(append(tt.env, env...), "ps")
			if r.code == 0 {
				t.Errorf("%+v", r)
			}
			for _, word := range tt.says {
				if !strings.Contains(r.stderr, word) {
					t.Errorf("%q is not in %q", word, r.stderr)
				}
			}
		})
	}
}

// A token goes to another host without TLS only where the network is said to be
// trusted, as inside a cluster: by the socket, and by POST.
func TestPlainHTTP(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]string{} // path → what it was asked with
	inner := collector.New(collector.Config{Token: "open-sesame", Hosts: []string{"collector.test"}, Limits: collector.Limits{Drain: 50 * time.Millisecond}}).Handler()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.Host+r.URL.Path] = r.Header.Get("Authorization")
		mu.Unlock()
		inner.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	w := newWorld(t)
	env := []string{"AEP_COLLECTOR=http://collector.test:8787", "AEP_TOKEN=open-sesame", "HTTP_PROXY=" + proxy.URL, "NO_PROXY="}
	launch := []string{"--", "sh", "-c", "echo done"}
	asks := [][]string{{"ps"}, {"pending"}, {"roster"}, {"tail"}, {"respond", "s", "r", "--option", "allow"}}
	if r := w.run(env, launch...); r.code != 2 || !strings.Contains(r.stderr, "plain-http") {
		t.Errorf("without a word: %+v", r)
	}
	for _, words := range asks {
		if r := w.run(env, words...); r.code == 0 || !strings.Contains(r.stderr, "plain-http") {
			t.Errorf("%q without a word: %+v", words, r)
		}
	}
	mu.Lock()
	if len(seen) > 0 {
		t.Errorf("it was asked all the same: %v", seen)
	}
	mu.Unlock()
	env = append(env, "AEP_PLAIN_HTTP=true")
	if r := w.run(env, launch...); r.code != 0 || !strings.Contains(r.stdout, "done") {
		t.Errorf("trusted: %+v", r)
	}
	for path := range w.logged() {
		if r := w.run(env, "replay", path); r.code != 0 {
			t.Errorf("replay: %+v", r)
		}
	}
	for _, words := range asks[:3] {
		if r := w.run(env, words...); r.code != 0 {
			t.Errorf("%q, trusted: %+v", words, r)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, path := range []string{"/socket", "/events", "/stream"} {
		if got := seen["collector.test:8787"+path]; got != "Bearer open-sesame" {
			t.Errorf("%s was asked with %q; all: %v", path, got, seen)
		}
	}
}

// Certificates that are put in the place of others, as in a pod, are used from
// then on; half of a change changes nothing.
func TestCertificatesAreReadAgain(t *testing.T) {
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	c := newStrictCollector(t, first)
	dir := t.TempDir()
	put := func(name string, content []byte) string { // renamed into place
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key := first.pair("wrapper")
	tr := newCollectorTransport(tlsFiles{ca: put("ca", first.pem), cert: put("cert", cert), key: put("key", key)}, false)
	ask := func() error {
		tr.mu.Lock()
		tr.next = time.Time{} // it is time to look
		tr.mu.Unlock()
		req, err := http.NewRequest(http.MethodGet, "https://"+c.addr+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		with, err := tr.transport()
		if with == nil {
			return err
		}
		with.TLSClientConfig.ServerName = strictName
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		tr.CloseIdleConnections()
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	c.trust(second)
	tr.CloseIdleConnections()
	if err := ask(); err == nil || !strings.Contains(err.Error(), "may not take --client-cert") {
		t.Fatalf("the collector changed its mind: %v", err)
	}
	cert, key = second.pair("wrapper")
	put("cert", cert)
	if err := ask(); err == nil || !strings.Contains(err.Error(), "want a certificate and its own key") {
		t.Fatalf("half of a change: %v", err)
	}
	put("key", key)
	if err := ask(); err != nil {
		t.Fatalf("after the change: %v", err)
	}
}

// No proxy comes between us and the per-user collector, whatever the
// environment says.
func TestNoProxyToTheSocket(t *testing.T) {
	for name, c := range map[string]*http.Client{
		"consumer": endpoint{Base: "http://aep-collector", Socket: "/nowhere"}.client(),
		"emitter":  (&app{Getenv: func(string) string { return "" }}).newJoiner(func(string) {}).client(),
	} {
		if tr, ok := c.Transport.(*http.Transport); !ok || tr.Proxy != nil {
			t.Errorf("%s: %T with a proxy", name, c.Transport)
		}
	}
}
