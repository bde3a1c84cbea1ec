-- Calls unlink where Lua's interpreter is deep in itself.
local function gone(name)
  os.remove("/nonexistent/" .. name)
end
local numbers = { 5, 3, 9, 1 }
pcall(function()
  table.sort(numbers, function(a, b)
    gone("sort")
    return a < b
  end)
  string.gsub("a b", "%w", gone)
  coroutine.wrap(function() gone("coroutine") end)()
end)
local index = setmetatable({}, { __index = function(_, key) gone(key) return key end })
local closed <close> = setmetatable({}, { __close = function() gone("close") end })
xpcall(function() error(index.inside) end, gone)
