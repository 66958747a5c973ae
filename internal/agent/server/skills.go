package server

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/skills"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// Skills are texts on how to use the gateway and each Kind of device, from 2026-07-28 on
// (SEP-2640). Their files are resources. The SDK has no types for the methods.
const (
	skillsExtension = "io.modelcontextprotocol/skills"
	markdownType    = "text/markdown"
	directoryType   = "inode/directory"
	maxSkills       = 200      // of Kinds
	skillsTTL       = 60_000   // milliseconds
	maxSkillCache   = 16 << 10 // skills
)

type listSkillsParams struct {
	mcp.ParamsBase
	Cursor string `json:"cursor,omitempty"`
}

type skillParams struct {
	mcp.ParamsBase
	URI    string `json:"uri"`
	Cursor string `json:"cursor,omitempty"`
}

// skillEntry is a skill in a result.
type skillEntry struct {
	URI         string      `json:"uri"`
	Frontmatter frontmatter `json:"frontmatter"`
	Resources   []skillFile `json:"resources"`
}

type frontmatter struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

type skillFile struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
	Size   int    `json:"size"`
}

type listSkillsResult struct {
	mcp.ResultBase
	ResultType string       `json:"resultType"`
	Skills     []skillEntry `json:"skills"`
	NextCursor string       `json:"nextCursor,omitempty"`
	TTL        int          `json:"ttlMs"`
	CacheScope string       `json:"cacheScope"`
}

type getSkillResult struct {
	mcp.ResultBase
	ResultType string     `json:"resultType"`
	Skill      skillEntry `json:"skill"`
	TTL        int        `json:"ttlMs"`
	CacheScope string     `json:"cacheScope"`
}

type readDirectoryResult struct {
	mcp.ResultBase
	ResultType string          `json:"resultType"`
	Resources  []*mcp.Resource `json:"resources"`
	NextCursor string          `json:"nextCursor,omitempty"`
}

const resultComplete = "complete" // resultType

// addSkills adds the methods of skills to the server of a view. The receiving middleware
// has put the caller into the context.
func (v *view) addSkills() error {
	if err := mcp.AddReceivingCustomMethod(v.sdk, "skills/list", v.listSkills); err != nil {
		return err
	}
	if err := mcp.AddReceivingCustomMethod(v.sdk, "skills/get", v.getSkill); err != nil {
		return err
	}
	return mcp.AddReceivingCustomMethod(v.sdk, "resources/directory/read", v.readDirectory)
}

// withoutSkills returns capabilities for versions that have no skills.
func withoutSkills(c *mcp.ServerCapabilities) *mcp.ServerCapabilities {
	if c == nil {
		return nil
	}
	older := *c
	older.Extensions = maps.Clone(c.Extensions)
	delete(older.Extensions, skillsExtension)
	return &older
}

// hasSkills returns an error if the version of a request has no skills.
func hasSkills(ctx context.Context) error {
	if client(ctx).Protocol < mcphttp.StatelessVersion {
		return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "skills exist from MCP " + mcphttp.StatelessVersion + " on"}
	}
	return nil
}

func (v *view) listSkills(ctx context.Context, _ *mcp.ServerSession, p *listSkillsParams) (*listSkillsResult, error) {
	if err := hasSkills(ctx); err != nil {
		return nil, err
	}
	var cursor string
	if p != nil {
		cursor = p.Cursor
	}
	var all []skillEntry
	for _, s := range v.skills(v.server.seenBy(ctx)) {
		all = append(all, entryOf(s))
	}
	page, next, err := paged(all, func(e skillEntry) string { return e.URI }, cursor, pageBytes(ctx))
	if err != nil {
		return nil, err
	}
	return &listSkillsResult{ResultType: resultComplete, Skills: page, NextCursor: next, TTL: skillsTTL, CacheScope: uncached.CacheScope}, nil
}

func (v *view) getSkill(ctx context.Context, _ *mcp.ServerSession, p *skillParams) (*getSkillResult, error) {
	if err := hasSkills(ctx); err != nil {
		return nil, err
	}
	if p != nil {
		for _, s := range v.skills(v.server.seenBy(ctx)) {
			if s.Main() == p.URI {
				return &getSkillResult{ResultType: resultComplete, Skill: entryOf(s), TTL: skillsTTL, CacheScope: uncached.CacheScope}, nil
			}
		}
	}
	return nil, badParams("there is no skill with this URI: list them with skills/list")
}

func (v *view) readDirectory(ctx context.Context, _ *mcp.ServerSession, p *skillParams) (*readDirectoryResult, error) {
	if err := hasSkills(ctx); err != nil {
		return nil, err
	}
	if p != nil {
		for _, s := range v.skills(v.server.seenBy(ctx)) {
			if all := s.Children(p.URI); all != nil {
				page, next, err := paged(all, func(c skills.Child) string { return c.Name }, p.Cursor, pageBytes(ctx))
				if err != nil {
					return nil, err
				}
				out := &readDirectoryResult{ResultType: resultComplete, Resources: make([]*mcp.Resource, len(page)), NextCursor: next}
				for i, c := range page {
					out.Resources[i] = childResource(s, c)
				}
				return out, nil
			}
		}
	}
	return nil, badParams("this URI is not a directory of a skill: list skills with skills/list")
}

// entryOf returns a skill in the form of a result.
func entryOf(s *skills.Skill) skillEntry {
	e := skillEntry{URI: s.Main(), Frontmatter: frontmatter{s.Name, s.Description}, Resources: make([]skillFile, len(s.Files))}
	for i, f := range s.Files {
		e.Resources[i] = skillFile{s.URI + "/" + f.Path, f.Digest, f.Size}
	}
	return e
}

// childResource returns an entry of a directory as a resource.
func childResource(s *skills.Skill, c skills.Child) *mcp.Resource {
	switch {
	case c.File == nil:
		return &mcp.Resource{URI: c.URI, Name: c.Name, MIMEType: directoryType}
	case c.File.Path == skills.MainFile:
		return mainResource(s)
	}
	return &mcp.Resource{URI: c.URI, Name: c.Name, MIMEType: markdownType, Size: int64(c.File.Size)}
}

// mainResource returns the SKILL.md of a skill as a resource.
func mainResource(s *skills.Skill) *mcp.Resource {
	return &mcp.Resource{URI: s.Main(), Name: s.Name, Description: s.Description, MIMEType: markdownType, Size: int64(s.File(s.Main()).Size)}
}

// skillResources returns the SKILL.md files of the skills of this view.
func (v *view) skillResources(see catalog.View) (all []*mcp.Resource) {
	for _, s := range v.skills(see) {
		all = append(all, mainResource(s))
	}
	return all
}

// skillText returns the text of a file of a skill that the caller is shown.
func (v *view) skillText(see catalog.View, uri string) (string, bool) {
	if !strings.HasPrefix(uri, skills.Root) {
		return "", false
	}
	if f := v.server.gatewaySkill().File(uri); f != nil {
		return f.Text, true
	}
	for _, k := range v.kinds(see) {
		if v.server.skills.of(k).File(uri) != nil {
			return skills.Kind(k.Kind, k.Manifest, k.Tools).File(uri).Text, true
		}
	}
	return "", false
}

// kinds returns the Kinds of listed devices.
func (v *view) kinds(see catalog.View) []catalog.KindTools {
	if v.device == "" {
		return see.Kinds(maxSkills)
	}
	if k, ok := see.KindOf(v.device); ok {
		return []catalog.KindTools{k}
	}
	return nil
}

// skills returns the skills of this view, sorted by URI: that of the gateway, and those of
// the Kinds of listed devices, without their texts.
func (v *view) skills(see catalog.View) []*skills.Skill {
	all := []*skills.Skill{v.server.gatewaySkill()}
	for _, k := range v.kinds(see) {
		all = append(all, v.server.skills.of(k))
	}
	slices.SortStableFunc(all, func(a, b *skills.Skill) int { return strings.Compare(a.Main(), b.Main()) })
	return slices.CompactFunc(all, func(a, b *skills.Skill) bool { return a.URI == b.URI })
}

// gatewaySkill returns the skill for using the gateway.
func (s *Server) gatewaySkill() *skills.Skill {
	_, manifest, ok := s.parts.Catalog.Lookup(ferrule.GatewayID)
	return skills.Gateway(func(tool string) bool {
		if !ok {
			return false
		}
		t := manifest.Tool(tool)
		return t != nil && !t.UserOnly
	})
}

// skillCache keeps what lists say of the skills of Kinds: making one takes longer than
// listing it.
type skillCache struct {
	mu   sync.Mutex
	made map[skillKey]*skills.Skill // without texts
}

// skillKey is what a skill of a Kind is made of. Shown has a byte for each tool of the
// manifest.
type skillKey struct {
	manifest *ferrule.Manifest
	shown    string
}

func (c *skillCache) of(k catalog.KindTools) *skills.Skill {
	tools := make(map[*ferrule.Tool]bool, len(k.Tools))
	for _, t := range k.Tools {
		tools[t] = true
	}
	shown := make([]byte, len(k.Manifest.Tools))
	for i := range k.Manifest.Tools {
		shown[i] = '0'
		if tools[&k.Manifest.Tools[i]] {
			shown[i] = '1'
		}
	}
	key := skillKey{k.Manifest, string(shown)}
	c.mu.Lock()
	s := c.made[key]
	c.mu.Unlock()
	if s != nil {
		return s
	}
	s = skills.Kind(k.Kind, k.Manifest, k.Tools).WithoutTexts()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil || len(c.made) >= maxSkillCache {
		c.made = make(map[skillKey]*skills.Skill)
	}
	c.made[key] = s
	return s
}
