package check

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the rendered manifests")

const (
	chartDir    = "../helm/aep-wrap"
	manifestDir = "../manifests"
	generated   = "# Rendered from deploy/helm/aep-wrap; do not edit. docs/kubernetes.md says how.\n"
)

// sets are the folders of plain manifests, and the values of each.
var sets = []struct{ name, values string }{
	{"collector", `{agent: {enabled: false}}`},
	{"sidecar", `{}`},
	{"entrypoint", `{agent: {mode: entrypoint}}`},
}

// others are values that a chart has to bear beside those.
var others = map[string]string{
	"everything": `
image: {digest: "sha256:` + strings.Repeat("a", 64) + `"}
imagePullSecrets: [{name: registry}]
token: {existingSecret: t, key: k, tokensKey: more}
captureFor: {attention: full, tool: redacted}
agent:
  kind: Deployment
  name: mine
  image: registry.example/agent:3
  command: [claude, -p]
  args: [fix the tests]
  env: [{name: ANTHROPIC_BASE_URL, value: "https://model.example"}]
  envFrom: [{secretRef: {name: model}}]
  logs: [.claude/projects]
  volumes: [{name: work, emptyDir: {sizeLimit: 1Gi}}]
  volumeMounts: [{name: work, mountPath: /work}]
uid: 1000
gid: 1000
sidecar: {hold: 20m, gate: [Bash, "mcp__*"], extraArgs: [--quiet], env: [{name: HTTPS_PROXY, value: "http://proxy.example:3128"}]}
spool: {existingClaim: spool}
collector:
  tlsSecret: tls
  hosts: [watch.example]
  origins: ["https://watch.example"]
  extraArgs: [--limit-sessions=9]
  persistence: {enabled: true, storageClass: fast}
networkPolicy:
  collectorIngress: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress}}}]
  metricsIngress: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
serviceMonitor: {enabled: true, labels: {release: prometheus}}
podAnnotations: {a.example/b: c}
podLabels: {team: agents}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: agents, operator: Exists}]
affinity: {nodeAffinity: {}}`,
	"another collector": `{collector: {enabled: false, url: "https://collector.example"}}`,
	"a plain one":       `{collector: {enabled: false, url: "http://collector.other.svc:8787", plainHTTP: true}}`,
	"logs alone":        `{collector: {enabled: false}, networkPolicy: {enabled: false}}`,
	"a small spool":     `{spool: {size: 1.5Gi}, hooks: {size: 1Mi}}`,
	"two users":         `{sidecar: {uid: 65533}}`,
	"a job's limits":    `{agent: {activeDeadlineSeconds: 3600, ttlSecondsAfterFinished: null, backoffLimit: 2}}`,
	"long names":        `{fullnameOverride: ` + strings.Repeat("n", 80) + `}`,
	"monitored":         `{agent: {mode: entrypoint}, serviceMonitor: {enabled: true}}`,
	"nothing":           `{agent: {enabled: false}, collector: {enabled: false}}`,
}

// render gives the chart's files with these values, by name.
func render(values string) (map[string]string, error) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = chartutil.KubeVersion{Version: "v" + versions[0] + ".0", Major: "1", Minor: "29"}
	if v := chart.Metadata.KubeVersion; !chartutil.IsCompatibleRange(v, caps.KubeVersion.Version) {
		return nil, fmt.Errorf("the chart wants Kubernetes %s", v)
	}
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: "aep-wrap", Namespace: "agents", Revision: 1, IsInstall: true}, caps)
	if err != nil {
		return nil, err
	}
	out, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for name, text := range out {
		if text = strings.TrimLeft(text, "\n-"); strings.TrimSpace(text) != "" && !strings.HasPrefix(path.Base(name), "_") {
			files[path.Base(name)] = strings.TrimSpace(text) + "\n"
		}
	}
	return files, nil
}

// check holds rendered files to schemas and rules.
func check(files map[string]string) error {
	var errs []error
	var all []object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".yaml" {
			continue
		}
		objects, err := parse([]byte(files[name]))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, o := range objects {
			for _, v := range versions {
				if err := validate(v, o); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", name, err))
				}
			}
		}
		all = append(all, objects...)
	}
	return errors.Join(append(errs, rules(all))...)
}

func TestValues(t *testing.T) {
	for name, values := range others {
		t.Run(name, func(t *testing.T) {
			files, err := render(values)
			if err != nil {
				t.Fatal(err)
			}
			if err := check(files); err != nil {
				t.Error(err)
			}
		})
	}
}

// The plain manifests are what the chart gives, and kustomize takes them.
func TestManifests(t *testing.T) {
	for _, set := range sets {
		t.Run(set.name, func(t *testing.T) {
			files, err := render(set.values)
			if err != nil {
				t.Fatal(err)
			}
			if err := check(files); err != nil {
				t.Error(err)
			}
			delete(files, "NOTES.txt")
			kustomization, err := yaml.Marshal(map[string]any{
				"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
				"namespace": "agents", "resources": slices.Sorted(maps.Keys(files)),
				"images": []any{map[string]any{"name": "aep-wrap", "newName": "aep-wrap", "newTag": "dev"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			files["kustomization.yaml"] = string(kustomization)
			same(t, filepath.Join(manifestDir, set.name), files)
			built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(manifestDir, set.name))
			if err != nil {
				t.Fatal(err)
			}
			text, err := built.AsYaml()
			if err != nil {
				t.Fatal(err)
			}
			if err := check(map[string]string{"built.yaml": string(text)}); err != nil {
				t.Errorf("as kustomize gives them: %v", err)
			}
			if !bytes.Contains(text, []byte("namespace: agents")) {
				t.Error("kustomize put them into no namespace")
			}
		})
	}
}

// same compares a folder with what it should hold, or writes it.
func same(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		text = generated + text
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s is not what the chart gives (%v): go test ./... -update in deploy/check", path, err)
		}
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range there {
		if _, ok := files[e.Name()]; !ok {
			t.Errorf("%s is of nobody", filepath.Join(dir, e.Name()))
		}
	}
}

// What is broken is refused, each by its own words.
func TestBroken(t *testing.T) {
	good, err := render(`{}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, old, put, want string }{
		{"agent.yaml", "restartPolicy: Always", "restartPolicies: Always", "restartPolicies"},
		{"agent.yaml", "backoffLimit: 0", "backoffLimit: never", "backoffLimit"},
		{"agent.yaml", "kind: Job", "kind: Jobs", "has no batch/v1 Jobs"},
		{"agent.yaml", "backoffLimit: 0", "backoffLimit: 0\n  backoffLimit: 1", "already set"},
		{"agent.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "runAsNonRoot"},
		{"agent.yaml", "capabilities: {drop: [ALL]}", "capabilities: {drop: [NET_RAW]}", "keeps capabilities"},
		{"agent.yaml", "seccompProfile: {type: RuntimeDefault}", "seccompProfile: {type: Unconfined}", "seccomp"},
		{"agent.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "read-only root"},
		{"agent.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: true", "service account"},
		{"agent.yaml", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 10", "while it drains"},
		{"agent.yaml", "port: aep-health}\n            periodSeconds: 1\n", "port: elsewhere}\n            periodSeconds: 1\n", "asks a port"},
		{"agent.yaml", "startupProbe:\n            httpGet: {path", "startupProbe:\n            grpc: {port: 1}\n          lifecycle:\n            postStart:\n             httpGet: {path", "without a startup probe"},
		{"agent.yaml", "- {name: aep-hooks, mountPath", "- {name: aep-hoox, mountPath", "no volume"},
		{"agent.yaml", "emptyDir: {sizeLimit: 1Gi}", "emptyDir: {}", "sizeLimit"},
		{"agent.yaml", "AEP_KEEP_SIZE, value: 768MiB", "AEP_KEEP_FOR, value: 30d", "keeps 2048 MiB of logs in a volume of 1024 MiB"},
		{"agent.yaml", "image: aep-wrap:dev", "image: aep-wrap", "which aep-wrap?"},
		{"agent.yaml", "restartPolicy: Never", "restartPolicy: Always", "wants a restartPolicy"},
		{"agent.yaml", "limits: {memory: 64Mi}", "limits: {}", "limit of memory"},
		{"agent.yaml", "- {name: AEP_PLAIN_HTTP, value: \"true\"}", "- {name: AEP_QUIET, value: \"true\"}", "refuses to send its token"},
		{"agent.yaml", "- {name: HOME, value: /var/lib/aep}", "- {name: AEP_TOKEN, value: secret}", "token in its environment"},
		{"collector.yaml", "targetPort: http", "targetPort: {}", "targetPort"},
		{"collector.yaml", "component: collector\n  ports", "component: collectors\n  ports", "selects nothing"},
		{"networkpolicy.yaml", "policyTypes: [Ingress, Egress]", "policyTypes: Ingress", "policyTypes"},
	} {
		t.Run(c.put, func(t *testing.T) {
			if !strings.Contains(good[c.file], c.old) {
				t.Fatalf("%s has no %q any more", c.file, c.old)
			}
			files := maps.Clone(good)
			files[c.file] = strings.Replace(files[c.file], c.old, c.put, 1)
			if err := check(files); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want words of %q", err, c.want)
			}
		})
	}
}

// Values that make no sense are refused before anything is installed.
func TestBadValues(t *testing.T) {
	for values, want := range map[string]string{
		`{agnet: {}}`:                             "agnet",
		`{capture: everything}`:                   "capture",
		`{captureFor: {tools: full}}`:             "invalid propertyName",
		`{agent: {kind: DaemonSet}}`:              "kind",
		`{uid: 0}`:                                "uid",
		`{image: {digest: latest}}`:               "digest",
		`{sidecar: {drain: 60s}}`:                 "must be more than sidecar.drain",
		`{sidecar: {drain: soon}}`:                "drain",
		`{agent: {logs: [a]}, sidecar: {uid: 7}}`: "their own user alone",
		`{agent: {logs: [/a]}}`:                   "logs",
		`{agent: {mode: entrypoint, args: [x]}}`:  "wants agent.command",
		`{agent: {mode: entrypoint, logs: [a]}}`:  "agent.logs is for",
		`{collector: {url: collector.example}}`:   "url",
		`{collector: {url: "http://c.example"}}`:  "collector.plainHTTP",
		`{collector: {port: 0}}`:                  "port",
	} {
		if _, err := render(values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want words of %q", values, err, want)
		}
	}
}
