-- What wrk's clients ask an instance for: items drawn from a Zipf distribution,
-- after a pause that is exponentially distributed, as if each client were a
-- person who comes back now and then. Or, once, for items that do not exist.
--
-- arguments: items SKEW THINK_MS SEED ITEMS
--            absent COUNT FIRST

local cumulative = {} -- of the ranks: the part of the draws up to each
local items, think_ms

local function prepare_items(args)
    local skew, total = tonumber(args[2]), 0
    think_ms = tonumber(args[3])
    math.randomseed(tonumber(args[4]))
    items = tonumber(args[5])
    for rank = 1, items do
        total = total + rank ^ -skew
        cumulative[rank] = total
    end
    for rank = 1, items do
        cumulative[rank] = cumulative[rank] / total
    end
end

local function draw_rank()
    local part, low, high = math.random(), 1, items
    while low < high do
        local middle = math.floor((low + high) / 2)
        if cumulative[middle] < part then
            low = middle + 1
        else
            high = middle
        end
    end
    return low
end

-- The hottest is 42, not 1: see HOTTEST_ITEM in lanes.py.
local function item_of(rank)
    return (rank - 1 + 41) % items + 1
end

local function ask_for_items()
    function request()
        return wrk.format("GET", "/items/" .. item_of(draw_rank()))
    end

    function delay()
        return math.floor(-math.log(1 - math.random()) * think_ms + 0.5)
    end
end

-- Each id once. The first is text: a number of Lua's would print as 1e+15.
local function ask_in_vain(args)
    local count, first, asked, answered = tonumber(args[2]), args[3], 0, 0

    function request()
        asked = asked + 1
        return wrk.format("GET", string.format("/items/%s%04d", first,
                                               asked % 10000))
    end

    function response()
        answered = answered + 1
        if answered >= count then
            os.exit(0) -- a stopped thread would leave the others waiting
        end
    end
end

function init(args)
    if args[1] == "absent" then
        ask_in_vain(args)
    else
        prepare_items(args)
        ask_for_items()
    end
end
