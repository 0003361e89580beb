package check

import (
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// The chart is as helm lint --strict wants it.
func TestLint(t *testing.T) {
	l := lint.All(chartDir, nil, "agents", true)
	for _, m := range l.Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
	if len(l.Messages) == 0 && l.HighestSeverity > support.InfoSev {
		t.Error("it fails, and says nothing")
	}
}
