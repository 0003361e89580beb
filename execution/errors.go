package execution

import "fmt"

// Code is a JSON-RPC error code: the specification's own, or one of the
// protocol's range.
type Code int

// The codes.
const (
	ParseError     Code = -32700
	InvalidRequest Code = -32600
	MethodNotFound Code = -32601
	InvalidParams  Code = -32602
	InternalError  Code = -32603

	AuthnFailed            Code = -32000
	AuthzDenied            Code = -32001
	CapabilityNotSupported Code = -32002
	CeilingExceeded        Code = -32003
	BudgetExhausted        Code = -32004
	TreeBoundaryViolation  Code = -32005
	SubjectNotFound        Code = -32006
	PolicyViolation        Code = -32007
	ToolNotFound           Code = -32008
	VersionMismatch        Code = -32009
	SessionExpired         Code = -32010
	LifecycleConflict      Code = -32011
)

// codes has each code's name, which goes into an error's data, and the HTTP
// status of an answer that is this error alone. Clients read the body of any
// answer below 500.
var codes = map[Code]struct {
	name   string
	status int
}{
	ParseError:     {"parse_error", 400},
	InvalidRequest: {"invalid_request", 400},
	MethodNotFound: {"method_not_found", 200},
	InvalidParams:  {"invalid_params", 200},
	InternalError:  {"internal_error", 200},

	AuthnFailed:            {"authn_failed", 401},
	AuthzDenied:            {"authz_denied", 403},
	CapabilityNotSupported: {"capability_not_supported", 200},
	CeilingExceeded:        {"ceiling_exceeded", 200},
	BudgetExhausted:        {"budget_exhausted", 200},
	TreeBoundaryViolation:  {"tree_boundary_violation", 200},
	SubjectNotFound:        {"subject_not_found", 200},
	PolicyViolation:        {"constitution_policy_violation", 200},
	ToolNotFound:           {"tool_not_found", 200},
	VersionMismatch:        {"version_mismatch", 400},
	SessionExpired:         {"session_expired", 401},
	LifecycleConflict:      {"lifecycle_conflict", 200},
}

// Error is a failed call, as the embedder hears of it.
type Error struct {
	Code    Code
	Message string
	Data    map[string]any // beyond the code's name
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s (%d): %s", codes[e.Code].name, e.Code, e.Message)
}

func fail(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// notFound is what a call hears whose id names nothing here.
func notFound(what, id string) *Error {
	e := fail(InvalidParams, "there is no %s %q", what, clip(id))
	if id == "" {
		e = missing(what)
	}
	e.Data = map[string]any{"reason": what + "_not_found"}
	return e
}

// missing says how params name what is meant.
func missing(what string) *Error {
	return fail(InvalidParams, "%s_id is missing: params say which %s is meant, as {%q: …}", what, what, what+"_id")
}

// clip keeps what a caller sent from filling an answer or a log.
func clip(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}
