package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// tlsFiles are what a collector is trusted by, and what it trusts us by. They
// may change while we run.
type tlsFiles struct {
	ca        string // certificates of authorities; "" is those of the system
	cert, key string // ours; "" shows none
}

// at is the files as they lie.
func (f tlsFiles) at(p paths) tlsFiles {
	return tlsFiles{ca: p.expand(f.ca), cert: p.expand(f.cert), key: p.expand(f.key)}
}

// config reads the files. An error names the setting, the file, and what it
// should hold.
func (f tlsFiles) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca-file %s: no certificate in it: want the collector's CA as PEM", f.ca)
		}
	}
	switch {
	case f.cert == "" && f.key == "":
		return c, nil
	case f.cert == "":
		return nil, errors.New("--client-key without a --client-cert: want both")
	case f.key == "":
		return nil, errors.New("--client-cert without a --client-key: want both")
	}
	cert, err := os.ReadFile(f.cert)
	if err != nil {
		return nil, fmt.Errorf("--client-cert: %w", err)
	}
	key, err := os.ReadFile(f.key)
	if err != nil {
		return nil, fmt.Errorf("--client-key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--client-cert %s and --client-key %s: %w: want a certificate and its own key, as PEM", f.cert, f.key, err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// stamp differs when a file was changed, or another was put in its place.
func (f tlsFiles) stamp() (s [3]string) {
	for i, path := range []string{f.ca, f.cert, f.key} {
		if path == "" {
			continue
		}
		fi, err := os.Stat(path)
		if err != nil {
			s[i] = "?"
			continue
		}
		var inode uint64
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			inode = st.Ino
		}
		s[i] = fmt.Sprint(inode, fi.Size(), fi.ModTime().UnixNano())
	}
	return s
}

// collectorTransport is what carries every request and every socket to a
// collector that is elsewhere. The environment's proxy is used; certificates are
// read again when their files change, as they do in a pod.
type collectorTransport struct {
	files tlsFiles
	plain bool // a token may go without TLS

	mu    sync.Mutex
	now   *http.Transport // nil until the files could be read
	stamp [3]string       // of the files that now was made of
	fault error           // why they cannot be read as they are
	next  time.Time       // when they are looked at again

	asked atomic.Bool // the collector has asked for a certificate
}

// errPlain is what stands in the way of a token.
var errPlain = errors.New("a token is not sent to another host without TLS: use https, or --plain-http where the network is trusted")

// lookAgain is how often the files are looked at, at most.
const lookAgain = time.Second

func newCollectorTransport(f tlsFiles, plain bool) *collectorTransport {
	return &collectorTransport{files: f, plain: plain}
}

// transport is the one for a request of now. Files that are in the middle of a
// change leave the last one in use; it ends no connection that is open.
func (t *collectorTransport) transport() (*http.Transport, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil && time.Now().Before(t.next) {
		return t.now, t.fault
	}
	t.next = time.Now().Add(lookAgain)
	stamp := t.files.stamp()
	if t.now != nil && stamp == t.stamp {
		t.fault = nil
		return t.now, nil
	}
	c, err := t.files.config()
	if t.fault = err; err != nil {
		return t.now, err
	}
	if t.now != nil {
		t.now.CloseIdleConnections()
	}
	ours := c.Certificates
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		t.asked.Store(true)
		if len(ours) == 0 {
			return new(tls.Certificate), nil
		}
		return &ours[0], nil
	}
	dial := net.Dialer{Timeout: 10 * time.Second}
	t.stamp, t.now = stamp, &http.Transport{
		Proxy: proxyOf, DialContext: dial.DialContext, TLSClientConfig: c,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: 90 * time.Second,
		ForceAttemptHTTP2: true,
	}
	return t.now, nil
}

// crosses says whether all that is sent there crosses a network as it is.
func crosses(u *url.URL) bool {
	return u.Scheme == "http" && !loopback(net.JoinHostPort(u.Hostname(), "0"))
}

// RoundTrip carries a request, and says of what goes wrong with certificates
// what to do.
func (t *collectorTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	with, fault := t.transport()
	if !t.plain && req.Header.Get("Authorization") != "" && crosses(req.URL) {
		with, fault = nil, errPlain
	}
	if with == nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, fault
	}
	resp, err := with.RoundTrip(req)
	if err == nil {
		return resp, nil
	}
	if err = t.advise(err); fault != nil {
		err = fmt.Errorf("%w; the files that were changed cannot be used: %w", err, fault)
	}
	return nil, err
}

// CloseIdleConnections is what http.Client looks for.
func (t *collectorTransport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil {
		t.now.CloseIdleConnections()
	}
}

// refusedTLS is how a connection ends whose certificate is not taken: by an
// alert, which comes after the handshake, or is lost as the connection breaks.
var refusedTLS = []string{"remote error: tls:", "broken pipe", "connection reset", "client conn could not be established", "EOF"}

// advise adds to an error of the handshake what to do about it.
func (t *collectorTransport) advise(err error) error {
	var unknown x509.UnknownAuthorityError
	switch word := err.Error(); {
	case errors.As(err, &unknown) && t.files.ca != "":
		return fmt.Errorf("%w: its CA is not in --ca-file %s", err, t.files.ca)
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: name the file of its CA by --ca-file", err)
	case !t.asked.Load() || !slices.ContainsFunc(refusedTLS, func(s string) bool { return strings.Contains(word, s) }):
		return err
	case t.files.cert == "":
		return fmt.Errorf("%w: the collector asks for a certificate: --client-cert and --client-key", err)
	}
	return fmt.Errorf("%w: the collector asked for a certificate, and may not take --client-cert %s", err, t.files.cert)
}

// proxyOf is the environment's proxy; an error does not tell its password.
func proxyOf(req *http.Request) (*url.URL, error) {
	u, err := http.ProxyFromEnvironment(req)
	if err != nil {
		return nil, errors.New("the proxy that the environment names has no address: want HTTPS_PROXY as http://HOST:PORT")
	}
	return u, nil
}
