package queue

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
)

// The classes of what fails on the way to a collector.
const (
	Unreachable = "unreachable" // nobody is there
	NoTrust     = "tls"         // its certificate, or ours, is not taken
	Slow        = "timeout"     // no answer came in time
	NoLeave     = "token"       // the token is none, or does not allow it
	Refusing    = "refused"     // it answered that it will not have this
	Broken      = "server"      // it answered that it cannot, or that what is before it cannot
	Other       = "other"
)

// Classes are all of them.
var Classes = []string{Unreachable, NoTrust, Slow, NoLeave, Refusing, Broken, Other}

// Class is the class of a failure: of an HTTP answer by its status, else of an
// error, which may know it by a method Class.
func Class(err error, status int) string {
	var knows interface{ Class() string }
	switch {
	case status == 401 || status == 403:
		return NoLeave
	case status >= 500:
		return Broken
	case status >= 300:
		return Refusing
	case errors.As(err, &knows):
		return knows.Class()
	case errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, new(tls.RecordHeaderError)), errors.As(err, new(tls.AlertError)),
		errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.HostnameError)), errors.As(err, new(x509.CertificateInvalidError)):
		return NoTrust
	case errors.Is(err, context.DeadlineExceeded), timedOut(err):
		return Slow
	case errors.As(err, new(*net.DNSError)), dialing(err):
		return Unreachable
	}
	return Other
}

func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

func dialing(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
