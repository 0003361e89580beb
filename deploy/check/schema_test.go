package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	prometheus "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// versions are the Kubernetes versions whose schemas manifests are held to: the
// first that has native sidecars without a switch, and the newest there is.
var versions = []string{"1.29", "1.30"}

// object is a manifest.
type object = map[string]any

// parse reads the documents of a file. A key given twice is an error, for the
// second would win without a word.
func parse(text []byte) (out []object, err error) {
	for _, doc := range strings.Split("\n"+string(text), "\n---") {
		var o object
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			return nil, err
		}
		if len(o) > 0 {
			out = append(out, o)
		}
	}
	return out, nil
}

// validate holds a manifest to what the API server takes, unknown fields refused.
func validate(version string, o object) error {
	group, kind := str(o, "apiVersion"), str(o, "kind")
	if strings.HasPrefix(group, "monitoring.coreos.com/") {
		return validatePrometheus(o)
	}
	s, err := schemaOf(version, group, kind)
	if err != nil {
		return err
	}
	if err := s.Validate(any(o)); err != nil {
		return fmt.Errorf("%s %s: %w", kind, str(o, "metadata", "name"), err)
	}
	return nil
}

// validatePrometheus reads a custom resource into its own type.
func validatePrometheus(o object) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	types := map[string]any{"ServiceMonitor": &prometheus.ServiceMonitor{}, "PodMonitor": &prometheus.PodMonitor{}}
	into, ok := types[str(o, "kind")]
	if !ok {
		return fmt.Errorf("no such kind: %s", str(o, "kind"))
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

var schemaDir = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "mod", "download", "-json", "sigs.k8s.io/kubectl-validate").Output()
	if err != nil {
		return "", fmt.Errorf("the schemas: %w", err)
	}
	var m struct{ Dir string }
	err = json.Unmarshal(out, &m)
	return filepath.Join(m.Dir, "pkg", "openapiclient", "builtins"), err
})

var compiled = map[string]*jsonschema.Schema{}

func schemaOf(version, apiVersion, kind string) (*jsonschema.Schema, error) {
	key := version + " " + apiVersion + " " + kind
	if s := compiled[key]; s != nil {
		return s, nil
	}
	dir, err := schemaDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, version, "apis", filepath.FromSlash(apiVersion)+".json")
	if !strings.Contains(apiVersion, "/") {
		path = filepath.Join(dir, version, "api", apiVersion+".json")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("Kubernetes %s has no %s: %w", version, apiVersion, err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	schemas, _ := doc.(object)["components"].(object)["schemas"].(object)
	name := ""
	for n, s := range schemas {
		strict(s.(object))
		gvks, _ := s.(object)["x-kubernetes-group-version-kind"].([]any)
		for _, gvk := range gvks {
			g := str(gvk.(object), "group")
			if g != "" {
				g += "/"
			}
			if g+str(gvk.(object), "version") == apiVersion && str(gvk.(object), "kind") == kind && len(gvks) == 1 {
				name = n
			}
		}
	}
	if name == "" {
		return nil, fmt.Errorf("Kubernetes %s has no %s %s", version, apiVersion, kind)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource(path, doc); err != nil {
		return nil, err
	}
	s, err := c.Compile(path + "#/components/schemas/" + name)
	if err == nil {
		compiled[key] = s
	}
	return s, err
}

// strict has a schema refuse what it does not name, as the API server does.
func strict(s object) {
	if props, ok := s["properties"].(object); ok {
		if _, open := s["additionalProperties"]; !open && s["x-kubernetes-preserve-unknown-fields"] == nil {
			s["additionalProperties"] = false
		}
		for _, p := range props {
			strict(p.(object))
		}
	}
	for _, k := range []string{"items", "additionalProperties"} {
		if sub, ok := s[k].(object); ok {
			strict(sub)
		}
	}
}

// str is the string at a path, or nothing.
func str(o object, path ...string) string {
	v, _ := at(o, path...).(string)
	return v
}

func at(v any, path ...string) any {
	for _, p := range path {
		m, ok := v.(object)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func list(v any, path ...string) (out []object) {
	l, _ := at(v, path...).([]any)
	for _, e := range l {
		if m, ok := e.(object); ok {
			out = append(out, m)
		}
	}
	return out
}
