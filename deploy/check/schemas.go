//go:build schemas

package check

// That the module with the schemas is one of ours; schemaDir finds its files.
import _ "sigs.k8s.io/kubectl-validate/pkg/openapiclient"
