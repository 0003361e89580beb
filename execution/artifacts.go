package execution

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
)

// The bounds of a look through a run's directory.
const (
	maxFiles = 10_000
	maxDepth = 64
)

// found is a file that a run left in its directory.
type found struct {
	path, sum, mime string
	size            int64
}

// harvest looks through a run's directory. The run began with it empty, or
// with what was noted then; links are not followed, and nothing outside is
// reached, whatever happens to the directory meanwhile.
func (s *Server) harvest(id string) (files []found, err error) {
	var rec runRecord
	if err := s.Store.view(func(t tx) (err error) { rec, err = t.run(id); return }); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(rec.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // it went away, or is not ours to read
		case d.IsDir() && strings.Count(p, "/") >= maxDepth:
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		case len(files) >= maxFiles:
			return fs.SkipAll
		}
		if f, err := sum(root, p); err == nil && rec.Before[p] != f.sum {
			files = append(files, f)
		}
		return nil
	})
	return files, err
}

func sum(root *os.Root, p string) (found, error) {
	f, err := root.Open(p)
	if err != nil {
		return found{}, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return found{}, errors.New("no regular file")
	}
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return found{}, err
	}
	h := sha256.New()
	h.Write(head[:n])
	rest, err := io.Copy(h, f)
	if err != nil {
		return found{}, err
	}
	kind := mime.TypeByExtension(path.Ext(p))
	if kind == "" {
		kind = http.DetectContentType(head[:n])
	}
	return found{path: p, sum: hex.EncodeToString(h.Sum(nil)), mime: kind, size: int64(n) + rest}, nil
}

// artifacts keeps what a run made, and gives the events that say so.
func (s *Server) artifacts(t tx, rec *runRecord, files []found) (events []Event, err error) {
	now := Time{s.Now()}
	for _, f := range files {
		a := artifactRecord{Path: f.path, Artifact: Artifact{
			Name: f.path, MIMEType: f.mime, SizeBytes: f.size, SHA256: f.sum, CreatedAt: now,
			CreatedBy: Maker{rec.AgentID, rec.ID}, RunID: rec.ID, Metadata: map[string]any{},
		}}
		if len(rec.SubjectIDs) == 1 {
			a.SubjectID = &rec.SubjectIDs[0]
		}
		if old := t.artifactAt(rec.ID, f.path); old != "" {
			a.ID = old // of an earlier leg of the same run
			if before, err := t.artifact(old); err == nil && before.SHA256 == f.sum {
				continue
			}
		} else {
			a.ID = s.ids.make(artifactPrefix, now.Time)
		}
		if err := t.putArtifact(a); err != nil {
			return nil, err
		}
		events = append(events, Event{Type: ArtifactCreated, EmittedAt: now, Payload: map[string]any{
			"artifact_id": a.ID, "name": a.Name, "mime_type": a.MIMEType, "size_bytes": a.SizeBytes, "sha256": a.SHA256,
		}})
	}
	return events, nil
}

type artifactID struct {
	ArtifactID string `json:"artifact_id"`
}

func (s *Server) artifactGet(_ context.Context, p artifactID) (any, error) {
	a, err := s.artifact(p.ArtifactID)
	return a.Artifact, err
}

func (s *Server) artifact(id string) (a artifactRecord, err error) {
	if !isID(id, artifactPrefix) {
		return a, notFound("artifact", id)
	}
	err = s.Store.view(func(t tx) (err error) { a, err = t.artifact(id); return })
	return a, err
}

func (s *Server) artifactList(_ context.Context, p struct {
	listing
	RunID     string `json:"run_id"`
	AgentID   string `json:"agent_id"`
	SubjectID string `json:"subject_id"`
}) (any, error) {
	limit, err := p.check(artifactPrefix)
	if err != nil {
		return nil, err
	}
	var out listed[Artifact]
	err = s.Store.view(func(t tx) (err error) {
		out.Items, out.Cursor, err = page(t, t.Bucket([]byte("artifacts")), p.Cursor, limit, func(id string, _ []byte) (Artifact, bool, error) {
			a, err := t.artifact(id)
			fits := (p.RunID == "" || a.RunID == p.RunID) && (p.AgentID == "" || a.CreatedBy.AgentID == p.AgentID) &&
				(p.SubjectID == "" || a.SubjectID != nil && *a.SubjectID == p.SubjectID)
			return a.Artifact, fits && err == nil, err
		})
		return err
	})
	return out, err
}

// artifactDelete removes an artifact and its file.
func (s *Server) artifactDelete(_ context.Context, p artifactID) (any, error) {
	a, err := s.artifact(p.ArtifactID)
	if err != nil {
		return nil, err
	}
	err = s.Store.update(func(t tx) error { return s.removeArtifact(t, a) })
	return map[string]any{"deleted": true}, err
}

func (s *Server) removeArtifact(t tx, a artifactRecord) error {
	rec, err := t.run(a.RunID)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(rec.Dir)
	if err == nil {
		err = root.Remove(a.Path)
		_ = root.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s of %s: %w", a.Path, a.RunID, err)
	}
	if of := t.Bucket([]byte("artifacts_of")).Bucket([]byte(a.RunID)); of != nil {
		if err := of.Delete([]byte(a.Path)); err != nil {
			return err
		}
	}
	return t.Bucket([]byte("artifacts")).Delete([]byte(a.ID))
}

// bytes serves an artifact's content, whole or in ranges. What is served is
// what was told of: a file that was changed since is none.
func (s *Server) bytes(w http.ResponseWriter, r *http.Request) {
	if !s.admit(w, r, RunRead, "") {
		return
	}
	a, err := s.artifact(r.PathValue("id"))
	var rec runRecord
	if err == nil {
		err = s.Store.view(func(t tx) (err error) { rec, err = t.run(a.RunID); return })
	}
	var f *os.File
	if err == nil {
		var root *os.Root
		if root, err = os.OpenRoot(rec.Dir); err == nil {
			defer func() { _ = root.Close() }()
			var now found
			if now, err = sum(root, a.Path); err == nil && now.sum != a.SHA256 {
				err = notFound("artifact", a.ID)
			} else if err == nil {
				f, err = root.Open(a.Path)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = notFound("artifact", a.ID)
		}
	}
	if err != nil {
		s.refuse(w, err)
		return
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Type", a.MIMEType)
	h.Set("Etag", `"`+a.SHA256+`"`)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", "attachment")
	h.Set("Cache-Control", "no-store")
	http.ServeContent(w, r, "", a.CreatedAt.Time, f)
}

// before notes the files that a run's directory holds at its start.
func before(dir string) (map[string]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	sums := map[string]string{}
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || slices.Contains([]string{".", ""}, p) {
			return nil
		}
		if len(sums) >= maxFiles {
			return fs.SkipAll
		}
		if f, err := sum(root, p); err == nil {
			sums[p] = f.sum
		}
		return nil
	})
	return sums, err
}
